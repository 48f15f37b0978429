package flash

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"strings"
	"sync"
)

// What was found out about a device by running something on it, probed layouts and verdicts of self-checks, is true until
// the device, its driver or the shaders change. It is remembered in the process, under keys that name all of these, and in a
// file beside the device's pipeline cache.

// known holds the process's findings.
var known = findings{entries: map[string]string{}}

type findings struct {
	mu      sync.Mutex
	entries map[string]string // by identity and key
}

// identity names the device and driver that a finding holds for.
func (d *Device) identity() string {
	f := d.caps.facts
	return fmt.Sprintf("%04x-%04x-%08x-%x", f.VendorID, f.DeviceID, f.DriverVersion, f.PipelineCacheUUID)
}

// knownPath is the file of the device's findings, "" when nothing is kept on disk.
func (d *Device) knownPath() string {
	path := d.ctx.DiskCache().Path
	if path == "" {
		return ""
	}
	return strings.TrimSuffix(path, filepath.Ext(path)) + ".known.json"
}

// recall gives a finding, "" when there is none.
func (d *Device) recall(key string) string {
	if d.counting != nil { // builds that no user runs
		return passed
	}
	id := d.identity()
	known.mu.Lock()
	defer known.mu.Unlock()
	if v, ok := known.entries[id+" "+key]; ok {
		return v
	}
	path := d.knownPath()
	if path == "" {
		return ""
	}
	onDisk, err := readKnown(path, id)
	if err != nil { // a file that cannot be used costs finding out again, and is replaced by it
		return ""
	}
	v := onDisk[key]
	if v != "" {
		known.entries[id+" "+key] = v
	}
	return v
}

// remember keeps a finding. A disk that cannot be written costs the next process the work.
func (d *Device) remember(key, value string) {
	id := d.identity()
	known.mu.Lock()
	defer known.mu.Unlock()
	known.entries[id+" "+key] = value
	if path := d.knownPath(); path != "" {
		_ = addKnown(path, id, key, value)
	}
}

// forget drops a finding, so that it is made again.
func (d *Device) forget(key string) {
	id := d.identity()
	known.mu.Lock()
	defer known.mu.Unlock()
	delete(known.entries, id+" "+key)
	if path := d.knownPath(); path != "" {
		_ = addKnown(path, id, key, "")
	}
}

// knownFile is the file: its entries and a hash of them, since what is read is believed.
type knownFile struct {
	Version  int               `json:"version"`
	Identity string            `json:"identity"`
	SHA256   string            `json:"sha256"`
	Entries  map[string]string `json:"entries"`
}

const knownVersion = 1

func hashKnown(identity string, entries map[string]string) (string, error) {
	b, err := json.Marshal(entries) // sorted by key
	if err != nil {
		return "", err
	}
	sum := sha256.Sum256(append([]byte(identity+"\n"), b...))
	return hex.EncodeToString(sum[:]), nil
}

func readKnown(path, identity string) (map[string]string, error) {
	data, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	var f knownFile
	if err := json.Unmarshal(data, &f); err != nil {
		return nil, err
	}
	if f.Version != knownVersion || f.Identity != identity {
		return nil, errors.New("of another version or device")
	}
	sum, err := hashKnown(identity, f.Entries)
	if err != nil {
		return nil, err
	}
	if sum != f.SHA256 {
		return nil, errors.New("damaged")
	}
	return f.Entries, nil
}

// addKnown adds an entry, or removes it when value is "". The file is replaced whole; of two processes that add at the same
// moment one may lose its entry, and finds out again.
func addKnown(path, identity, key, value string) error {
	entries, err := readKnown(path, identity)
	if err != nil || entries == nil {
		entries = map[string]string{}
	}
	entries = maps.Clone(entries)
	if value == "" {
		delete(entries, key)
	} else {
		entries[key] = value
	}
	sum, err := hashKnown(identity, entries)
	if err != nil {
		return err
	}
	data, err := json.MarshalIndent(knownFile{knownVersion, identity, sum, entries}, "", "  ")
	if err != nil {
		return err
	}
	dir := filepath.Dir(path)
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return err
	}
	tmp, err := os.CreateTemp(dir, filepath.Base(path)+".*.tmp")
	if err != nil {
		return err
	}
	_, err = tmp.Write(append(data, '\n'))
	if err = errors.Join(err, tmp.Close()); err == nil {
		err = os.Rename(tmp.Name(), path)
	}
	if err != nil {
		os.Remove(tmp.Name())
	}
	return err
}
