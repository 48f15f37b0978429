package ring

import (
	"context"
	"encoding/json"
	"fmt"
	"reflect"

	"github.com/vkattn/vkattn/flash"
)

// statement is what a rank says of itself before any work.
type statement struct {
	Wrong  string // its own argument that cannot be, "" for none
	Fields []field
}

type field struct{ Name, Value string }

// stated lists everything that ranks must agree on, in words.
func stated(p flash.Problem, s Shard, ranks int) []field {
	out := []field{{"the number of ranks", fmt.Sprint(ranks)}, {"Shard.Order", s.order(&p).String()}}
	v := reflect.ValueOf(p)
	for i := range v.NumField() {
		name := v.Type().Field(i).Name
		value := fmt.Sprint(v.Field(i).Interface())
		switch name {
		case "Score":
			value = p.Score.CacheKey()
		case "Sees":
			value = p.Sees.CacheKey()
		}
		out = append(out, field{"Problem." + name, value})
	}
	return out
}

// agree tells all ranks what each is about to compute, and what it found wrong with it, and says what is wrong together.
func (r *Ring) agree(ctx context.Context, p flash.Problem, s Shard, bad error) error {
	mine := statement{Fields: stated(p, s, r.Size())}
	if bad != nil {
		mine.Wrong = bad.Error()
	}
	raw, err := json.Marshal(mine)
	if err != nil {
		return err
	}
	all, err := r.comm.AllGather(ctx, raw)
	if err != nil {
		r.comm.Abort(err)
		return err
	}
	if bad != nil {
		return bad
	}
	wrong := &ShardError{Rank: r.Rank()}
	for rank, raw := range all {
		var their statement
		if err := json.Unmarshal(raw, &their); err != nil {
			return fmt.Errorf("ring: rank %d says what cannot be read, as another version would: %w", rank, err)
		}
		if their.Wrong != "" {
			return &RankError{Rank: rank, Err: fmt.Errorf("%s", their.Wrong)}
		}
		values := map[string]string{}
		for _, f := range their.Fields {
			values[f.Name] = f.Value
		}
		for _, f := range mine.Fields {
			if values[f.Name] != f.Value {
				wrong.Differences = append(wrong.Differences, Difference{Rank: rank, What: f.Name, Mine: f.Value, Their: values[f.Name]})
			}
		}
	}
	if len(wrong.Differences) > 0 {
		return wrong
	}
	return nil
}
