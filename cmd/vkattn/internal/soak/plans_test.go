package soak

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/signal"
	"strconv"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/vkattn/vkattn/flash"
)

// TestPlans lets some plans live and die: a hundred thousand with tools/soak.sh plans.
func TestPlans(t *testing.T) {
	layers := &said{}
	first := true
	o := PlanOptions{Plans: flags.n, Seed: seed(), Workers: flags.workers, Limit: flags.limit, Resident: flags.n >= 50000}
	o.Open = func() (*flash.Device, error) {
		if first { // the others are opened from goroutines of their own
			first = false
			dev, messages := openValidated(t)
			layers = messages
			return dev, nil
		}
		return openLike(layers)
	}
	if o.Plans == 0 {
		if o.Plans = 4000; testing.Short() {
			o.Plans = 200
		}
	}
	if flags.only != "" {
		n, err := strconv.Atoi(flags.only)
		require.NoError(t, err)
		o.Only = n
	}
	o.Marked = func(m Mark) {
		if flags.n > 0 {
			fmt.Fprintln(os.Stderr, m)
		} else {
			t.Log(m)
		}
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	t.Logf("seed %d", o.Seed)
	s, err := Plans(ctx, o)
	if s != nil {
		line := fmt.Sprintf("%s, seed %d: %d plans, %d passes, %d compared with float64, %d cancelled, %d closed in flight, %d devices "+
			"of their own, %.1f s",
			s.Device, s.Seed, s.Plans, s.Passes, s.Compared, s.Cancelled, s.InFlight, s.Devices, s.Seconds)
		if flags.n > 0 {
			fmt.Println(line)
		} else {
			t.Log(line)
		}
		if flags.out != "" {
			data, err := json.MarshalIndent(s, "", "  ")
			require.NoError(t, err)
			require.NoError(t, os.WriteFile(flags.out, append(data, '\n'), 0o644))
		}
	}
	require.NoError(t, err, "again: tools/soak.sh plans %d --seed %d --only NUMBER", o.Plans, o.Seed)
	require.Empty(t, layers.take(), "the validation layers object")
	require.Empty(t, s.Grown)
	if o.Only == 0 {
		require.Positive(t, s.Cancelled)
		require.Positive(t, s.Compared)
		require.Positive(t, s.InFlight)
	}
}
