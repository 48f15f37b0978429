package flash

import (
	"sync"

	"github.com/hashicorp/golang-lru/v2/simplelru"

	"github.com/vkattn/vkattn/internal/attn"
	"github.com/vkattn/vkattn/internal/kernel"
	"github.com/vkattn/vkattn/internal/kernel/catalogue"
	"github.com/vkattn/vkattn/internal/tiles"
	"github.com/vkattn/vkattn/internal/tuned"
	"github.com/vkattn/vkattn/vk"
)

// A program that makes a plan for each call plans the same problems again and again. What was chosen for one is kept with the device, so
// that a plan of it looks nothing up: programs are shared by plans as they are by recordings. It is chosen anew once anything that was
// looked at may have changed: verdicts that were dropped or are others now, the user's tuning file, the device's tiles.

// selectionKey is all that a choice depends on beside the device.
type selectionKey struct {
	problem        attn.Problem // without its functions
	score, sees    string       // which become the same code
	both           string       // with one another, where there are both: they may share tables
	implementation Implementation
	tier           Tier
	tuning         string
	noStored       bool
}

// forwardChoice is the kernel that a plan takes for forward passes.
type forwardChoice = chosen[*kernel.Kernel, kernel.Program]

// selection is the kernel that was chosen for a problem and options.
type selection struct {
	*forwardChoice
	rows  []*tiles.Row // of tiles, that its own is from
	tuned *tuned.Entry // the entry of the user's tuning file that it follows, if any
	known knownState

	// for passes that follow it, as far as they were asked for
	backward kept[*kernel.BackwardKernel, kernel.BackwardProgram]
	jvp      kept[*kernel.JVPKernel, kernel.JVPProgram]
}

// knownState tells whether what a choice was made by is what it was.
type knownState struct {
	facts    *vk.Facts
	tiles    *tiles.Family
	findings uint64
	tunings  uint64
}

func (d *Device) knownState(stored bool) knownState {
	s := knownState{facts: d.env.Caps.Facts, tiles: d.env.Caps.Tiles, findings: kernel.Known.Changes()}
	if stored {
		s.tunings = tuned.State()
	}
	return s
}

// mostSelections is how many are kept: those that were used last.
const mostSelections = 128

// selections are those of a device. Their number does not grow once it is full, so that neither does what a program holds.
type selections struct {
	mu   sync.Mutex
	used *simplelru.LRU[selectionKey, *selection] // nil before the first
}

func (s *selections) get(key *selectionKey) *selection {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.used == nil {
		return nil
	}
	found, _ := s.used.Get(*key)
	return found
}

func (s *selections) put(key *selectionKey, made *selection) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.used == nil {
		s.used, _ = simplelru.NewLRU[selectionKey, *selection](mostSelections, nil) // an error is of a size that is not positive
	}
	s.used.Add(*key, made)
}

// selected gives the kernel for a problem and options, by what was chosen before where that still holds.
func (d *Device) selected(p *attn.Problem, o *planOptions) (*selection, error) {
	key := selectionKey{problem: *p, score: p.Score.CacheKey(), sees: p.Sees.CacheKey(), implementation: o.implementation, tier: o.tier,
		noStored: o.noStored}
	if !p.Score.Identity() && !p.Sees.Everything() {
		key.both = p.Code().CacheKey()
	}
	key.problem.Score, key.problem.Sees = attn.Problem{}.Score, attn.Problem{}.Sees
	if len(o.tuning) > 0 {
		key.tuning = kernel.Constants(o.tuning).String()
	}
	keep := d.env.Modules == nil && d.env.Counting == nil // in tests what a module is may change
	known := d.knownState(!o.noStored)
	if keep {
		if found := d.selections.get(&key); found != nil && found.known == known {
			return found, nil
		}
	}
	s := &selection{known: known}
	var err error
	s.forwardChoice, err = pick(d, p, catalogue.Forward, "", o.implementation, o.tier,
		func(k *kernel.Kernel) (program kernel.Program, t *kernel.Tuning, note string, err error) {
			if program, t, s.tuned, note, err = d.fit(k, p, o); err == nil {
				s.rows = t.Rows
			}
			return program, t, note, err
		})
	if err != nil {
		return nil, err
	}
	if keep {
		d.selections.put(&key, s)
	}
	return s, nil
}

// holds says whether what was chosen before still is: what it was chosen by is what it was.
func (s *selection) holds(d *Device) bool {
	return s.known.findings == kernel.Known.Changes() && s.known.facts == d.env.Caps.Facts && s.known.tiles == d.env.Caps.Tiles &&
		d.env.Modules == nil && d.env.Counting == nil
}
