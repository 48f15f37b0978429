package result

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/vkattn/vkattn/internal/attn"
)

// ParseInts reads a comma list of positive integers; "4k" is 4096 and "2m" is
// 2·1024²; the largest is 2³⁰−1, as far as a length of flash.Problem goes. name
// is what it is for, for the error.
func ParseInts(name string, list []string) ([]int, error) { return parseInts(name, 1, list) }

// parseInts is that of integers from a least one on.
func parseInts(name string, least int, list []string) ([]int, error) {
	var out []int
	for _, s := range list {
		text, unit := strings.ToLower(strings.TrimSpace(s)), 1
		switch {
		case strings.HasSuffix(text, "k"):
			text, unit = text[:len(text)-1], 1<<10
		case strings.HasSuffix(text, "m"):
			text, unit = text[:len(text)-1], 1<<20
		}
		v, err := strconv.Atoi(text)
		if err != nil || v < least || v > (1<<30-1)/unit {
			return nil, fmt.Errorf("%s %q: it must be a comma list of integers from %d to 2³⁰−1, such as 512,1024,4k", name, s, least)
		}
		out = append(out, v*unit)
	}
	return out, nil
}

// ParseWindows reads a list of reaches of windows, 0 for none.
func ParseWindows(list []string) ([]int, error) { return fromZero("window")(list) }

// fromZero is ParseInts where 0 stands for none.
func fromZero(name string) func([]string) ([]int, error) {
	return func(list []string) ([]int, error) { return parseInts(name, 0, list) }
}

// ParseCausal reads true, false or both.
func ParseCausal(s string) ([]bool, error) {
	switch strings.ToLower(strings.TrimSpace(s)) {
	case "true", "yes", "1":
		return []bool{true}, nil
	case "false", "no", "0":
		return []bool{false}, nil
	case "both":
		return []bool{false, true}, nil
	}
	return nil, fmt.Errorf("causal %q: it must be true, false or both", s)
}

// parseName reads one of some names, or none, which is "" in files.
func parseName(axis, s string, names []string) (string, error) {
	text := strings.ToLower(strings.TrimSpace(s))
	if text == "" || text == "none" {
		return "", nil
	}
	if slices.Contains(names, text) {
		return text, nil
	}
	return "", fmt.Errorf("%s %q: it must be one of none, %s", axis, s, strings.Join(names, ", "))
}

// parseBools reads true, false or both, of a flag.
func parseBools(name string) func(string) ([]bool, error) {
	return func(s string) ([]bool, error) {
		out, err := ParseCausal(s)
		if err != nil {
			return nil, errors.New(name + strings.TrimPrefix(err.Error(), "causal"))
		}
		return out, nil
	}
}

// ParseDropouts reads a list of probabilities: 0, or from 1/512, the first that
// does not round to none of 256, to below 511/512, the last that does not round
// to all.
func ParseDropouts(list []string) ([]float64, error) {
	var out []float64
	for _, s := range list {
		v, err := strconv.ParseFloat(strings.TrimSpace(s), 64)
		if err != nil || !(v >= 0 && v < 511.0/512) {
			return nil, fmt.Errorf("dropout %q: it must be at least 0 and below 511/512", s)
		}
		if p := (attn.Problem{Dropout: v}); v > 0 && p.DropThreshold() == 0 {
			return nil, fmt.Errorf("dropout %q: it must be 0 or at least 1/512, for probabilities are taken to the nearest 1/256, and "+
				"this would be 0", s)
		}
		out = append(out, v)
	}
	return out, nil
}

// ParseDensities reads a list of shares of nonzero blocks, above 0 and up to 1,
// or as percentages: 0.05 or 5%.
func ParseDensities(list []string) ([]float64, error) {
	var out []float64
	for _, s := range list {
		text, percent := strings.CutSuffix(strings.TrimSpace(s), "%")
		v, err := strconv.ParseFloat(text, 64)
		if percent {
			v /= 100
		}
		if err != nil || !(v > 0 && v <= 1) {
			return nil, fmt.Errorf("density %q: it must be above 0 and at most 1, or 100%%", s)
		}
		out = append(out, v)
	}
	return out, nil
}

var dtypeNames = map[string]string{
	"float16": "float16", "fp16": "float16", "f16": "float16", "half": "float16",
	"bfloat16": "bfloat16", "bf16": "bfloat16",
	"float32": "float32", "fp32": "float32", "f32": "float32", "float": "float32",
}

// ParseDType accepts the usual spellings (fp16, f16, half, float16, bf16, …)
// and returns the one that files use: float16, bfloat16 or float32.
func ParseDType(s string) (string, error) {
	if name, ok := dtypeNames[strings.ToLower(strings.TrimSpace(s))]; ok {
		return name, nil
	}
	return "", fmt.Errorf("dtype %q: it must be float16 (fp16), bfloat16 (bf16) or float32 (fp32)", s)
}
