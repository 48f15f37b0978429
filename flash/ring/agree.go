package ring

import (
	"context"
	"encoding/json"
	"fmt"
	"reflect"

	"github.com/vkattn/vkattn/flash"
	"github.com/vkattn/vkattn/internal/kernel"
)

// statement is what a rank says of itself before any work.
type statement struct {
	Wrong  string // its own argument that cannot be, "" for none
	Fields []field
	Speeds Speeds // measured by it; zero: not
}

type field struct{ Name, Value string }

// stated lists everything that ranks must agree on, in words.
func stated(p flash.Problem, s Shard, ranks int) []field {
	out := []field{{"the number of ranks", fmt.Sprint(ranks)}, {"Shard.Order", s.order(&p).String()}, {"Shard.Over", s.Over.String()},
		{"Shard.PerHost", fmt.Sprint(s.PerHost)}}
	v := reflect.ValueOf(p)
	for i := range v.NumField() {
		name := v.Type().Field(i).Name
		value := fmt.Sprint(v.Field(i).Interface())
		switch name {
		case "ScoreFunction":
			value = kernel.FunctionKey(p.ScoreFunction)
		case "MaskFunction":
			value = kernel.FunctionKey(p.MaskFunction)
		}
		out = append(out, field{"Problem." + name, value})
	}
	return out
}

// agree tells all ranks what each is about to compute, and what it found wrong with it, and says what is wrong together.
// It gives the slowest of the speeds that ranks measured.
func (r *Ring) agree(ctx context.Context, p flash.Problem, s Shard, bad error) (slowest Speeds, _ error) {
	mine := statement{Fields: stated(p, s, r.Size())}
	if bad == nil {
		mine.Speeds = s.Speeds
	}
	if bad != nil {
		mine.Wrong = bad.Error()
	}
	raw, err := json.Marshal(mine)
	if err != nil {
		return slowest, err
	}
	all, err := r.comm.AllGather(ctx, raw)
	if err != nil {
		r.comm.Abort(err)
		return slowest, err
	}
	if bad != nil {
		return slowest, bad
	}
	wrong := &ShardError{Rank: r.Rank()}
	for rank, raw := range all {
		var their statement
		if err := json.Unmarshal(raw, &their); err != nil {
			return slowest, fmt.Errorf("ring: rank %d says what cannot be read, as another version would: %w", rank, err)
		}
		if their.Wrong != "" {
			return slowest, &RankError{Rank: rank, Err: fmt.Errorf("%s", their.Wrong)}
		}
		slowest = slowest.slower(their.Speeds)
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
		return slowest, wrong
	}
	return slowest, nil
}
