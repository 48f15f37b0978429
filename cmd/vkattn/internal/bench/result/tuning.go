package result

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
)

// Tuning is parameters of a kernel's tile as names and numbers, in the order of
// the names: "bc=32,br=64". It is text so that cases can be compared; "" leaves
// all to the library.
type Tuning string

// ParseTuning reads a comma list of name=number, in any order.
func ParseTuning(s string) (Tuning, error) {
	values := map[string]int{}
	for _, part := range strings.Split(s, ",") {
		name, number, ok := strings.Cut(strings.TrimSpace(part), "=")
		v, err := strconv.Atoi(number)
		if !ok || name == "" || err != nil || v < 0 {
			return "", fmt.Errorf("tuning %q: it must be a comma list of name=number such as br=64,bc=32", s)
		}
		if _, twice := values[name]; twice {
			return "", fmt.Errorf("tuning %q: it has %s twice; several tiles are several --tuning", s, name)
		}
		values[name] = v
	}
	return tuningOf(values), nil
}

func tuningOf(values map[string]int) Tuning {
	var parts []string
	for _, name := range slices.Sorted(maps.Keys(values)) {
		parts = append(parts, fmt.Sprintf("%s=%d", name, values[name]))
	}
	return Tuning(strings.Join(parts, ","))
}

// Values gives the parameters by name; nil for "".
func (t Tuning) Values() map[string]int {
	if t == "" {
		return nil
	}
	values := map[string]int{}
	for _, part := range strings.Split(string(t), ",") {
		name, number, _ := strings.Cut(part, "=")
		values[name], _ = strconv.Atoi(number) // ParseTuning has looked at it
	}
	return values
}

// sorted is the tuning as ParseTuning gives it; "" stays.
func (t Tuning) sorted() (Tuning, error) {
	if t == "" {
		return "", nil
	}
	return ParseTuning(string(t))
}
