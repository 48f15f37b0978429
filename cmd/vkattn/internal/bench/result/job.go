package result

// MarshalJSON writes a job as peers are asked for it and as `vkattn bench --list` prints it: the case with the keys of result
// files, and the passes, such as
//
//	{"impl":"flash2","dtype":"float16","B":1,"H":8,"Hkv":8,"Nq":512,"N":512,"D":64,"Dv":64,"causal":true,"passes":["fwd"]}
//
// Keys of axes that a case does not use (dropout, density, tuning) are left out.
func (j Job) MarshalJSON() ([]byte, error) {
	var o object
	for _, a := range Axes {
		if v := a.in(&j.Case); v != nil && a.Key != "" {
			o.add(a.Key, v, a.Sure)
		}
	}
	o.add("passes", j.Passes.names(), true)
	return o.end()
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
		jobs = append(jobs, Job{c, p.OrDefault()})
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
			out[i].Passes = out[i].Passes.And(j.Passes)
			continue
		}
		at[j.Case] = len(out)
		out = append(out, Job{j.Case, j.Passes.OrDefault()})
	}
	return out
}
