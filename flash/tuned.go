package flash

import (
	"bytes"
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"math/bits"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"

	"github.com/vkattn/vkattn/internal/attn"
	"github.com/vkattn/vkattn/internal/diskfile"
	"github.com/vkattn/vkattn/internal/kernel"
	"github.com/vkattn/vkattn/internal/plainjson"
	"github.com/vkattn/vkattn/internal/tiles"
)

// A tile that was measured to be the fastest on the user's own device takes the place of the built-in choice. Such tiles are
// kept in one small JSON file in the user's configuration directory, which `vkattn tune` writes. An entry holds for one
// device and driver, kernel, storage type, head dimensions, causal or not, class of query length, and what kind of cache keys
// are read from. A plan says that it
// follows an entry (Plan.String, Plan.Tuned), and an entry that no longer fits is left aside with the reason
// (Plan.WhyNotFaster).

// TuningEnv names the environment variable that replaces the tuning file's path; "off" means none.
const TuningEnv = "VKATTN_TUNING"

// TuningFile is the path of the user's tuning file, "" when VKATTN_TUNING is off or there is no configuration directory.
func TuningFile() string {
	switch path := os.Getenv(TuningEnv); path {
	case "":
	case "off":
		return ""
	default:
		return path
	}
	dir, err := os.UserConfigDir()
	if err != nil {
		return ""
	}
	return filepath.Join(dir, "vkattn", "tuning.json")
}

// TuningKey says what an entry of the tuning file is for.
type TuningKey struct {
	Device   string `json:"device"`    // DeviceInfo.Name
	Driver   string `json:"driver"`    // DeviceInfo.Driver
	Build    string `json:"build"`     // pipelineCacheUUID: changes with anything that changes compiled code
	Kernel   string `json:"kernel"`    // its name without a tile
	DType    string `json:"dtype"`     // DType.String
	HeadDim  int    `json:"head_dim"`  // D
	ValueDim int    `json:"value_dim"` // Dv
	Causal   bool   `json:"causal"`    // either causal mask, or a window
	Window   bool   `json:"window,omitempty"`
	Queries  string `json:"queries"` // class of query lengths: few (up to 16), some (up to 511), many
	// Class of key lengths, "up to" a power of two, for few queries: their tile cuts the keys into parts. "" for more.
	Keys string `json:"keys,omitempty"`
	// Where keys and values lie and how: rows of a page, 0 of tensors; types, "" for DType; sequences one behind the other.
	Page      int    `json:"page,omitempty"`
	KeyType   string `json:"key_type,omitempty"`
	ValueType string `json:"value_type,omitempty"`
	Packed    bool   `json:"packed,omitempty"`
}

// TuningEntry is a tile that measured fastest.
type TuningEntry struct {
	TuningKey
	Tuning  map[string]int `json:"tuning"`  // parameters by name, as WithTuning takes them
	Tile    string         `json:"tile"`    // for people
	Gain    float64        `json:"gain"`    // time of the built-in choice over time of this one
	TFLOPS  float64        `json:"tflops"`  // 10¹² operations a second, at the problem measured
	Problem string         `json:"problem"` // that was measured, as Problem.String
}

// Bounds of the classes of query lengths.
const (
	mostFewQueries  = 16
	mostSomeQueries = 511
)

// queryClass puts query lengths together that want the same tile: decoding, a prompt's few, training's many.
func queryClass(n int) string {
	switch {
	case n <= mostFewQueries:
		return "few"
	case n <= mostSomeQueries:
		return "some"
	}
	return "many"
}

const (
	keyClassText  = "up to %d"
	leastKeyClass = 1024
)

// keyClass puts key lengths together that want the same number of parts.
func keyClass(queries, keys int) string {
	if queryClass(queries) != "few" {
		return ""
	}
	return fmt.Sprintf(keyClassText, max(leastKeyClass, 1<<bits.Len(uint(keys-1))))
}

// TuningKey is the key of a problem with a kernel on this device.
func (d *Device) TuningKey(kernel string, p Problem) (TuningKey, error) {
	if d == nil || d.dev == nil {
		return TuningKey{}, d.usable()
	}
	p, err := p.Normalize()
	if err != nil {
		return TuningKey{}, err
	}
	a := p.attn()
	return d.tuningKey(kernel, &a), nil
}

func (d *Device) tuningKey(kernel string, p *attn.Problem) TuningKey {
	f := d.env.Caps.Facts
	return TuningKey{Device: f.Name, Driver: d.info.Driver, Build: hex.EncodeToString(f.PipelineCacheUUID[:]), Kernel: kernel,
		DType: p.DType.String(), HeadDim: p.HeadDim, ValueDim: p.ValueDim, Causal: p.Masked(), Window: p.Local(),
		Queries: queryClass(p.QueryLen),
		Keys:    keyClass(p.QueryLen, p.KeyLen), Page: p.Pages.Size, KeyType: p.KeyType.InCache(), ValueType: p.ValueType.InCache(),
		Packed: !p.Packed.None()}
}

// Candidate is a tiling that a kernel offers for a problem.
type Candidate struct {
	Kernel  string         // its name, "scalar_forward"
	Tile    string         // for people, "64x32"
	Tuning  map[string]int // for WithTuning: what was chosen, without what follows from it
	Default bool           // the built-in choice; its Tuning is empty
}

// Candidates lists the tilings that fit the device, for the kernel that Plan would take with these options; the built-in
// choice comes first. A kernel without a choice has that one alone. Stored tunings are not looked at.
func (d *Device) Candidates(p Problem, opts ...PlanOption) (_ []Candidate, err error) {
	defer during("Candidates", &err)
	opts = append(slices.Clone(opts), withoutStored)
	plan, err := d.Plan(p, opts...)
	if err != nil {
		return nil, err
	}
	defer plan.Close()
	out := []Candidate{{Kernel: plan.kernel.Name, Tile: plan.program.Tile(), Default: true}}
	if plan.kernel.Candidates == nil {
		return out, nil
	}
	// Two ways to say the same tile are one candidate.
	seen := []map[string]int{plan.Tuning()}
	candidates := plan.kernel.Candidates(&d.env.Caps, &plan.attn)
	if row := d.env.Caps.TunedRow(plan.kernel.Name, &plan.attn); row != nil {
		candidates = append(candidates, row.Values)
	}
	for _, c := range candidates {
		other, err := d.Plan(p, append(slices.Clone(opts), WithTier(plan.Tier()), WithTuning(c))...)
		if errors.Is(err, ErrArgument) || errors.Is(err, ErrUnsupported) {
			continue // does not fit this device
		}
		if err != nil {
			return nil, err
		}
		effect := other.Tuning()
		tile := other.program.Tile()
		if err := other.Close(); err != nil {
			return nil, err
		}
		if slices.ContainsFunc(seen, func(m map[string]int) bool { return kernel.SameTuning(m, effect) }) {
			continue
		}
		seen = append(seen, effect)
		out = append(out, Candidate{Kernel: plan.kernel.Name, Tile: tile, Tuning: c})
	}
	return out, nil
}

// BackwardCandidates lists tilings for the kernels of the backward pass that Plan would take with these options: of one of them at a time,
// while the others keep the built-in choice, which comes first. Those that a kernel's self-check refuses are left out.
func (d *Device) BackwardCandidates(p Problem, opts ...PlanOption) (_ []Candidate, err error) {
	defer during("BackwardCandidates", &err)
	var out []Candidate
	var seen []map[string]int
	list := []map[string]int{nil} // the built-in choice; it says what else there is
	for i := 0; i < len(list); i++ {
		plan, err := d.Plan(p, append(slices.Clone(opts), withoutStored, WithBackwardTuning(list[i]))...)
		if err != nil {
			return nil, err
		}
		info, err := plan.BackwardInfo()
		if i == 0 && err == nil && plan.gradient.kernel.Candidates != nil {
			list = append(list, plan.gradient.kernel.Candidates(&d.env.Caps, &plan.attn)...)
		}
		if closing := plan.Close(); closing != nil {
			return nil, errors.Join(err, closing)
		}
		if i > 0 && (errors.Is(err, ErrArgument) || errors.Is(err, ErrUnsupported)) {
			continue // does not fit this device
		}
		if err != nil {
			return nil, err
		}
		// Two ways to say the same tile are one candidate; where a kernel of another tier stepped in, it is none.
		if i > 0 && info.KernelName != out[0].Kernel ||
			slices.ContainsFunc(seen, func(m map[string]int) bool { return kernel.SameTuning(m, info.Tuning) }) {
			continue
		}
		seen = append(seen, info.Tuning)
		out = append(out, Candidate{Kernel: info.KernelName, Tile: strings.TrimPrefix(info.Kernel, info.KernelName+" "), Tuning: list[i],
			Default: i == 0})
	}
	return out, nil
}

// withoutStored makes a plan ignore the tuning file.
func withoutStored(o *planOptions) error { o.noStored = true; return nil }

// WithoutStoredTuning makes a plan take its tile from rows of tiles, whatever the user's tuning file has.
func WithoutStoredTuning() PlanOption { return withoutStored }

// fit fits a kernel to a problem, with the caller's tuning if there is any, else with what tune measured if that fits, by the caller's file
// of tiles or else by the user's tuning file, else with a row of tiles. note says why what tune measured was left aside.
func (d *Device) fit(k *kernel.Kernel, p *attn.Problem, o *planOptions) (prog kernel.Program, t *kernel.Tuning, entry *TuningEntry,
	note string, err error) {
	if len(o.tuning) == 0 && !o.noStored && k.Candidates != nil {
		var values map[string]int
		what, row := "", d.env.Caps.TunedRow(k.Name, p)
		if row != nil {
			values, what = row.Values, "tuning of "+row.Place()
		} else if entry, note = d.storedTuning(k.Name, p); entry != nil {
			values, what = entry.Tuning, "stored tuning "+entry.Tile
		}
		if values != nil {
			t = kernel.NewTuning(values)
			if err = t.Fits(&k.Offer); err == nil {
				prog, err = k.Plan(d.env, p, t)
			}
			var no *kernel.Declined
			switch {
			case err == nil && row != nil:
				t.Rows = []*tiles.Row{row}
				return prog, t, nil, "", nil
			case err == nil:
				return prog, t, entry, "", nil
			case !errors.Is(err, ErrArgument) && !errors.As(err, &no):
				return nil, nil, nil, "", err
			}
			note = fmt.Sprintf("%s is left aside: %v", what, err)
		}
	}
	t = kernel.NewTuning(o.tuning)
	if err = t.Fits(&k.Offer); err == nil {
		prog, err = k.Plan(d.env, p, t)
	}
	return prog, t, nil, note, err
}

// tuningStore is the tuning file as read last.
type tuningStore struct {
	mu      sync.Mutex
	path    string
	stamp   fs.FileInfo
	entries []TuningEntry
	err     error
	reads   uint64 // of files, each of which may hold something else
}

var storedTunings tuningStore

// storedTuning looks a problem up. note says what is wrong with the file.
func (d *Device) storedTuning(kernel string, p *attn.Problem) (entry *TuningEntry, note string) {
	entries, err := storedTunings.read(TuningFile())
	if err != nil {
		d.env.Notices.Say("stored tunings are not used: %v", err)
		return nil, err.Error()
	}
	key := d.tuningKey(kernel, p)
	for i := range entries {
		if entries[i].TuningKey == key {
			return &entries[i], ""
		}
	}
	return nil, ""
}

// read gives the file's entries; it reads the file again when it changed. A missing file has none.
func (s *tuningStore) read(path string) ([]TuningEntry, error) {
	if path == "" {
		return nil, nil
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	info, err := os.Stat(path)
	if errors.Is(err, fs.ErrNotExist) {
		s.path = ""
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("flash: tuning file: %w", err)
	}
	if s.path == path && s.stamp.ModTime().Equal(info.ModTime()) && s.stamp.Size() == info.Size() {
		return s.entries, s.err
	}
	s.path, s.stamp = path, info
	s.reads++
	s.entries, s.err = loadTunings(path)
	return s.entries, s.err
}

// state differs whenever what read gives may.
func (s *tuningStore) state(path string) uint64 {
	_, _ = s.read(path) // whoever takes a tuning from the file tells what is wrong with it
	s.mu.Lock()
	defer s.mu.Unlock()
	if path == "" || s.path == "" {
		return 0
	}
	return s.reads
}

// tuningFile is what the file holds.
type tuningFile struct {
	Version int             `json:"version"`
	SHA256  string          `json:"sha256,omitempty"` // of the entries without white space; whoever edits them by hand takes it out
	Entries json.RawMessage `json:"entries"`
}

const tuningVersion = 1

func hashTunings(entries json.RawMessage) (string, error) {
	var b bytes.Buffer
	err := json.Compact(&b, entries)
	sum := sha256.Sum256(b.Bytes())
	return hex.EncodeToString(sum[:]), err
}

func loadTunings(path string) ([]TuningEntry, error) {
	data, err := os.ReadFile(path)
	if err != nil {
		return nil, fmt.Errorf("flash: tuning file: %w", err)
	}
	return parseTunings(path, data)
}

// parseTunings reads what a file holds; path is for errors.
func parseTunings(path string, data []byte) ([]TuningEntry, error) {
	damaged := func(err error) error {
		return fmt.Errorf("flash: tuning file %s is damaged (remove it): %w", path, err)
	}
	var f tuningFile
	if err := plainjson.Unmarshal(data, &f); err != nil {
		return nil, damaged(err)
	}
	if f.Version != tuningVersion {
		return nil, fmt.Errorf("flash: tuning file %s is of version %d, and this library reads version %d", path, f.Version, tuningVersion)
	}
	var entries []TuningEntry
	if err := plainjson.Unmarshal(f.Entries, &entries); err != nil {
		return nil, damaged(err)
	}
	if sum, err := hashTunings(f.Entries); err != nil || f.SHA256 != "" && f.SHA256 != sum {
		return nil, damaged(errors.New("its checksum does not match; after an edit by hand, remove the line sha256"))
	}
	return entries, nil
}

// StoredTunings gives the entries of the user's tuning file.
func StoredTunings() ([]TuningEntry, error) {
	entries, err := storedTunings.read(TuningFile())
	return slices.Clone(entries), err
}

// StoreTunings puts entries into the user's tuning file, in place of those with the same keys. The file is replaced whole,
// so that a reader never sees half of it, and what other processes store at the same moment stays. A file that is damaged is
// left as it is, and the error says so.
func StoreTunings(entries ...TuningEntry) error {
	return rewriteTunings(func(old []TuningEntry) []TuningEntry {
		return append(slices.DeleteFunc(old, func(o TuningEntry) bool {
			return slices.ContainsFunc(entries, func(e TuningEntry) bool { return e.TuningKey == o.TuningKey })
		}), entries...)
	})
}

// RemoveTunings takes the entries with these keys out of the user's tuning file.
func RemoveTunings(keys ...TuningKey) error {
	if entries, err := storedTunings.read(TuningFile()); err == nil && len(entries) == 0 {
		return nil
	}
	return rewriteTunings(func(old []TuningEntry) []TuningEntry {
		return slices.DeleteFunc(old, func(o TuningEntry) bool { return slices.Contains(keys, o.TuningKey) })
	})
}

// encodeTunings makes the file, its entries sorted.
func encodeTunings(all []TuningEntry) ([]byte, error) {
	slices.SortFunc(all, func(a, b TuningEntry) int {
		return cmp.Or(cmp.Compare(a.Device, b.Device), cmp.Compare(a.Kernel, b.Kernel), cmp.Compare(a.DType, b.DType),
			cmp.Compare(a.HeadDim, b.HeadDim), cmp.Compare(a.ValueDim, b.ValueDim), cmp.Compare(a.Queries, b.Queries),
			cmp.Compare(a.Keys, b.Keys),
			cmp.Compare(a.Page, b.Page), cmp.Compare(a.KeyType, b.KeyType), cmp.Compare(a.ValueType, b.ValueType),
			cmp.Compare(a.Driver, b.Driver))
	})
	f := tuningFile{Version: tuningVersion}
	var err error
	if f.Entries, err = json.Marshal(all); err != nil {
		return nil, err
	}
	if f.SHA256, err = hashTunings(f.Entries); err != nil {
		return nil, err
	}
	data, err := json.MarshalIndent(f, "", "  ")
	return append(data, '\n'), err
}

func rewriteTunings(change func(old []TuningEntry) []TuningEntry) error {
	path := TuningFile()
	if path == "" {
		return fmt.Errorf("flash: there is no tuning file to write: %s is off, or there is no configuration directory", TuningEnv)
	}
	var unread error
	err := diskfile.Update(path, func() ([]byte, error) {
		var old []TuningEntry
		if _, err := os.Stat(path); !errors.Is(err, fs.ErrNotExist) {
			if old, unread = loadTunings(path); unread != nil {
				return nil, unread
			}
		}
		return encodeTunings(change(old))
	})
	if unread != nil {
		return unread
	}
	if err != nil {
		return fmt.Errorf("flash: tuning file: %w", err)
	}
	storedTunings.mu.Lock()
	storedTunings.path = "" // read again, whatever the file's time says
	storedTunings.mu.Unlock()
	return nil
}
