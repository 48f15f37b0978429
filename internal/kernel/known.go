package kernel

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"sync"
	"sync/atomic"

	"github.com/vkattn/vkattn/internal/diskfile"
	"github.com/vkattn/vkattn/internal/plainjson"
)

// What was found out about a device by running something on it, probed layouts and verdicts of self-checks, is true until
// the device, its driver or the shaders change. It is remembered in the process, under keys that name all of these, and in a
// file beside the device's pipeline cache.

// Known holds the process's findings.
var Known = findings{Entries: map[string]string{}, busy: map[string]chan struct{}{}}

type findings struct {
	Mu      sync.Mutex
	Entries map[string]string        // by identity and key
	busy    map[string]chan struct{} // what somebody is finding out, by the same; closed when that has ended
	changes atomic.Uint64            // how often an entry was dropped, or became another

	disk sync.Mutex // held, before mu, while a file is read or written: nobody who only looks something up waits for it
	file struct {   // as read or written last
		path    string
		stamp   fs.FileInfo
		entries map[string]string
	}
}

// Changes counts how often a finding was dropped or became another: what follows from findings holds as long as it stays.
func (f *findings) Changes() uint64 { return f.changes.Load() }

// Clear drops the process's findings, in tests: they come from disk, or have to be made.
func (f *findings) Clear() {
	f.Mu.Lock()
	defer f.Mu.Unlock()
	f.Entries = map[string]string{}
	f.changes.Add(1)
}

// enter waits until nobody else is finding out a key of an identity, and keeps others waiting until leave.
func (f *findings) enter(at string) (leave func()) {
	f.Mu.Lock()
	for {
		other, ok := f.busy[at]
		if !ok {
			break
		}
		f.Mu.Unlock()
		<-other
		f.Mu.Lock()
	}
	done := make(chan struct{})
	f.busy[at] = done
	f.Mu.Unlock()
	return func() {
		f.Mu.Lock()
		delete(f.busy, at)
		f.Mu.Unlock()
		close(done)
	}
}

// look gives what a file says of a key, reading it again when it changed. A file that cannot be used costs finding out again, and
// is replaced by it; the error says what is wrong with it.
func (f *findings) look(path, identity, key string) (string, error) {
	info, err := os.Stat(path)
	if errors.Is(err, fs.ErrNotExist) {
		return "", nil
	}
	if err != nil {
		return "", err
	}
	last := &f.file
	if last.path != path || !os.SameFile(last.stamp, info) || !last.stamp.ModTime().Equal(info.ModTime()) ||
		last.stamp.Size() != info.Size() {
		entries, err := ReadKnown(path, identity)
		if err != nil {
			return "", err
		}
		last.path, last.stamp, last.entries = path, info, entries
	}
	return last.entries[key], nil
}

// note writes an entry, or its removal, to a file. damage says what was wrong with the file that was there.
func (f *findings) note(path, identity, key, value string) (damage, err error) {
	f.file.path = ""
	entries, damage, err := AddKnown(path, identity, key, value)
	if err != nil {
		return damage, err
	}
	if info, err := os.Stat(path); err == nil {
		f.file.path, f.file.stamp, f.file.entries = path, info, entries
	}
	return damage, nil
}

// Identity names the device and driver that a finding holds for.
func (e *Env) Identity() string {
	f := e.Caps.Facts
	return fmt.Sprintf("%04x-%04x-%08x-%x", f.VendorID, f.DeviceID, f.DriverVersion, f.PipelineCacheUUID)
}

// KnownPath is the file of the device's findings, "" when nothing is kept on disk.
func (e *Env) KnownPath() string {
	path := e.Ctx.DiskCache().Path
	if path == "" {
		return ""
	}
	return path + ".known.json"
}

// Verdict gives what a kernel's self-check found on this device and driver: what is remembered under the key, or else what try says
// is wrong with it, nothing being [Passed]. Goroutines that ask for one key at once share one try; those that ask for others do not
// wait for it. An error of try is not remembered: whoever waited tries again.
func (e *Env) Verdict(key string, try func() (wrong string, err error)) (string, error) {
	return e.findOut(key, func() (string, error) {
		wrong, err := try()
		if wrong == "" {
			wrong = Passed
		}
		return wrong, err
	})
}

// findOut gives a finding, made by find and remembered at the first call; find gives "" for what is not to be remembered.
func (e *Env) findOut(key string, find func() (string, error)) (string, error) {
	if v := e.Recall(key); v != "" {
		return v, nil
	}
	defer Known.enter(e.Identity() + " " + key)()
	if v := e.Recall(key); v != "" { // another goroutine found it meanwhile
		return v, nil
	}
	v, err := find()
	if err == nil && v != "" {
		e.Remember(key, v)
	}
	return v, err
}

// Recall gives a finding, "" when there is none.
func (e *Env) Recall(key string) string {
	if e.Counting != nil || e.Ctx.CompileOnly() { // builds that no user runs; what does not run cannot be wrong
		return Passed
	}
	id := e.Identity()
	at := id + " " + key
	Known.Mu.Lock()
	v, ok := Known.Entries[at]
	Known.Mu.Unlock()
	path := e.KnownPath()
	if ok || path == "" {
		return v
	}
	Known.disk.Lock()
	defer Known.disk.Unlock()
	v, err := Known.look(path, id, key)
	e.damagedKnown(err)
	if v != "" {
		Known.Mu.Lock()
		Known.Entries[at] = v
		Known.Mu.Unlock()
	}
	return v
}

// Remember keeps a finding.
func (e *Env) Remember(key, value string) {
	at := e.Identity() + " " + key
	Known.Mu.Lock()
	if old, ok := Known.Entries[at]; ok && old != value {
		Known.changes.Add(1)
	}
	Known.Entries[at] = value
	Known.Mu.Unlock()
	Known.disk.Lock()
	defer Known.disk.Unlock()
	e.note(key, value)
}

// note is that of the device's file, if it has one. A disk that cannot be written costs the next process the work.
func (e *Env) note(key, value string) {
	path := e.KnownPath()
	if path == "" {
		return
	}
	damage, err := Known.note(path, e.Identity(), key, value)
	e.damagedKnown(damage)
	if err != nil {
		e.Notices.Say("verdicts of self-checks could not be stored (%v): the next run checks again", err)
	}
}

// damagedKnown tells of a file of findings that cannot be used.
func (e *Env) damagedKnown(err error) {
	if err != nil {
		e.Notices.Say("verdicts of self-checks on disk cannot be used (%v): kernels are checked again", err)
	}
}

// Forget drops a finding, so that it is made again.
func (e *Env) Forget(key string) {
	id := e.Identity()
	Known.disk.Lock()
	defer Known.disk.Unlock()
	e.note(key, "")
	Known.Mu.Lock()
	delete(Known.Entries, id+" "+key)
	Known.changes.Add(1)
	Known.Mu.Unlock()
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

// ReadKnown reads a file of an identity. One that is not there has no entries.
func ReadKnown(path, identity string) (map[string]string, error) {
	data, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	entries, err := ParseKnown(data, identity)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	return entries, nil
}

func ParseKnown(data []byte, identity string) (map[string]string, error) {
	var f knownFile
	if err := plainjson.Unmarshal(data, &f); err != nil {
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
		return nil, errors.New("damaged: its checksum does not match")
	}
	return f.Entries, nil
}

// AddKnown adds an entry, or removes it when value is "", and gives what the file then holds, and what was wrong with it before.
// Entries that other processes add at the same moment stay.
func AddKnown(path, identity, key, value string) (entries map[string]string, damage, err error) {
	err = diskfile.Update(path, func() ([]byte, error) {
		var old map[string]string
		old, damage = ReadKnown(path, identity)
		entries = map[string]string{}
		maps.Copy(entries, old)
		if value == "" {
			delete(entries, key)
		} else {
			entries[key] = value
		}
		sum, err := hashKnown(identity, entries)
		if err != nil {
			return nil, err
		}
		data, err := json.MarshalIndent(knownFile{knownVersion, identity, sum, entries}, "", "  ")
		return append(data, '\n'), err
	})
	return entries, damage, err
}
