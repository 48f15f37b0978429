package tuned

import (
	"bytes"
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"sync"

	"github.com/vkattn/vkattn/internal/diskfile"
	"github.com/vkattn/vkattn/internal/plainjson"
)

// Env names the environment variable that replaces the tuning file's path; "off" means none.
const Env = "VKATTN_TUNING"

// File is the path of the user's tuning file, "" when VKATTN_TUNING is off or there is no configuration directory.
func File() string {
	switch path := os.Getenv(Env); path {
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

// store is the user's tuning file as read last.
type store struct {
	mu      sync.Mutex
	path    string
	stamp   fs.FileInfo
	entries []Entry
	err     error
	reads   uint64 // of files, each of which may hold something else
}

var stored store

// Find looks a key up; nil where the file has nothing for it. The error says what is wrong with the file.
func Find(key Key) (*Entry, error) {
	entries, err := stored.read(File())
	if err != nil {
		return nil, err
	}
	for i := range entries {
		if entries[i].Key == key {
			return &entries[i], nil
		}
	}
	return nil, nil
}

// State differs whenever what Find gives may.
func State() uint64 { return stored.state(File()) }

// read gives the file's entries; it reads the file again when it changed. A missing file has none.
func (s *store) read(path string) ([]Entry, error) {
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
	s.entries, s.err = load(path)
	return s.entries, s.err
}

// state differs whenever what read gives may.
func (s *store) state(path string) uint64 {
	_, _ = s.read(path) // whoever takes a tuning from the file tells what is wrong with it
	s.mu.Lock()
	defer s.mu.Unlock()
	if path == "" || s.path == "" {
		return 0
	}
	return s.reads
}

// content is what the file holds.
type content struct {
	Version int             `json:"version"`
	SHA256  string          `json:"sha256,omitempty"` // of the entries without white space; whoever edits them by hand takes it out
	Entries json.RawMessage `json:"entries"`
}

const version = 1

func hash(entries json.RawMessage) (string, error) {
	var b bytes.Buffer
	err := json.Compact(&b, entries)
	sum := sha256.Sum256(b.Bytes())
	return hex.EncodeToString(sum[:]), err
}

func load(path string) ([]Entry, error) {
	data, err := os.ReadFile(path)
	if err != nil {
		return nil, fmt.Errorf("flash: tuning file: %w", err)
	}
	return parse(path, data)
}

// parse reads what a file holds; path is for errors.
func parse(path string, data []byte) ([]Entry, error) {
	damaged := func(err error) error {
		return fmt.Errorf("flash: tuning file %s is damaged (remove it): %w", path, err)
	}
	var f content
	if err := plainjson.Unmarshal(data, &f); err != nil {
		return nil, damaged(err)
	}
	if f.Version != version {
		return nil, fmt.Errorf("flash: tuning file %s is of version %d, and this library reads version %d", path, f.Version, version)
	}
	var entries []Entry
	if err := plainjson.Unmarshal(f.Entries, &entries); err != nil {
		return nil, damaged(err)
	}
	if sum, err := hash(f.Entries); err != nil || f.SHA256 != "" && f.SHA256 != sum {
		return nil, damaged(errors.New("its checksum does not match; after an edit by hand, remove the line sha256"))
	}
	return entries, nil
}

// Stored gives the entries of the user's tuning file.
func Stored() ([]Entry, error) {
	entries, err := stored.read(File())
	return slices.Clone(entries), err
}

// Store puts entries into the user's tuning file, in place of those with the same keys. The file is replaced whole,
// so that a reader never sees half of it, and what other processes store at the same moment stays. A file that is damaged is
// left as it is, and the error says so.
func Store(entries ...Entry) error {
	return rewrite(func(old []Entry) []Entry {
		return append(slices.DeleteFunc(old, func(o Entry) bool {
			return slices.ContainsFunc(entries, func(e Entry) bool { return e.Key == o.Key })
		}), entries...)
	})
}

// Remove takes the entries with these keys out of the user's tuning file.
func Remove(keys ...Key) error {
	if entries, err := stored.read(File()); err == nil && len(entries) == 0 {
		return nil
	}
	return rewrite(func(old []Entry) []Entry {
		return slices.DeleteFunc(old, func(o Entry) bool { return slices.Contains(keys, o.Key) })
	})
}

// encode makes the file, its entries sorted.
func encode(all []Entry) ([]byte, error) {
	slices.SortFunc(all, func(a, b Entry) int {
		return cmp.Or(cmp.Compare(a.Device, b.Device), cmp.Compare(a.Kernel, b.Kernel), cmp.Compare(a.DType, b.DType),
			cmp.Compare(a.HeadDim, b.HeadDim), cmp.Compare(a.ValueDim, b.ValueDim), cmp.Compare(a.Queries, b.Queries),
			cmp.Compare(a.Keys, b.Keys),
			cmp.Compare(a.Page, b.Page), cmp.Compare(a.KeyType, b.KeyType), cmp.Compare(a.ValueType, b.ValueType),
			cmp.Compare(a.Driver, b.Driver))
	})
	f := content{Version: version}
	var err error
	if f.Entries, err = json.Marshal(all); err != nil {
		return nil, err
	}
	if f.SHA256, err = hash(f.Entries); err != nil {
		return nil, err
	}
	data, err := json.MarshalIndent(f, "", "  ")
	return append(data, '\n'), err
}

func rewrite(change func(old []Entry) []Entry) error {
	path := File()
	if path == "" {
		return fmt.Errorf("flash: there is no tuning file to write: %s is off, or there is no configuration directory", Env)
	}
	var unread error
	err := diskfile.Update(path, func() ([]byte, error) {
		var old []Entry
		if _, err := os.Stat(path); !errors.Is(err, fs.ErrNotExist) {
			if old, unread = load(path); unread != nil {
				return nil, unread
			}
		}
		return encode(change(old))
	})
	if unread != nil {
		return unread
	}
	if err != nil {
		return fmt.Errorf("flash: tuning file: %w", err)
	}
	stored.mu.Lock()
	stored.path = "" // read again, whatever the file's time says
	stored.mu.Unlock()
	return nil
}
