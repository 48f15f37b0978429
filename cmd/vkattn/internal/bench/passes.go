package bench

import (
	"fmt"
	"strings"
)

// Passes says which passes are timed. The zero value is forward alone.
type Passes struct{ Fwd, Bwd bool }

// ParsePasses reads a list of fwd, bwd and both; the passes of an empty list
// are the zero value.
func ParsePasses(list []string) (p Passes, err error) {
	for _, s := range list {
		switch strings.ToLower(strings.TrimSpace(s)) {
		case "fwd", "forward":
			p.Fwd = true
		case "bwd", "backward":
			p.Bwd = true
		case "both":
			p = Passes{true, true}
		default:
			return p, fmt.Errorf("pass %q: it must be fwd, bwd or both", s)
		}
	}
	return p, nil
}

func (p Passes) orDefault() Passes {
	if p == (Passes{}) {
		p.Fwd = true
	}
	return p
}

// and is the passes of either.
func (p Passes) and(o Passes) Passes {
	p, o = p.orDefault(), o.orDefault()
	return Passes{p.Fwd || o.Fwd, p.Bwd || o.Bwd}
}

// names are those of the peer's protocol.
func (p Passes) names() (out []string) {
	p = p.orDefault()
	if p.Fwd {
		out = append(out, "fwd")
	}
	if p.Bwd {
		out = append(out, "bwd")
	}
	return out
}

// Done says whether a row has what is asked for, or the reason why it never will.
func (p Passes) Done(r Row) bool {
	p = p.orDefault()
	return r.Error != "" || (!p.Fwd || r.Fwd.Ms > 0) && (!p.Bwd || r.Bwd.Ms > 0 || r.BwdFailure.Error != "")
}

// Job is a row to measure: a case and its passes.
type Job struct {
	Case   Case
	Passes Passes
}

// JobsOf are jobs of the same passes.
func JobsOf(cases []Case, p Passes) []Job {
	jobs := make([]Job, 0, len(cases))
	for _, c := range cases {
		jobs = append(jobs, Job{c, p.orDefault()})
	}
	return jobs
}

// DistinctJobs makes one job of those of the same case, with the passes of all,
// at the place of the first.
func DistinctJobs(jobs []Job) []Job {
	at := make(map[Case]int, len(jobs))
	out := jobs[:0:0]
	for _, j := range jobs {
		if i, ok := at[j.Case]; ok {
			out[i].Passes = out[i].Passes.and(j.Passes)
			continue
		}
		at[j.Case] = len(out)
		out = append(out, Job{j.Case, j.Passes.orDefault()})
	}
	return out
}
