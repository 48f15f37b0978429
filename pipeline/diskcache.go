package pipeline

import (
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"sync"

	"github.com/vkattn/vkattn/internal/diskfile"
)

// DiskCache says what became of the compiled kernels on disk.
type DiskCache struct {
	Path     string // the folder of the device and driver, empty when there is none
	Loaded   int    // bytes of drivers' data found so far that can be used
	Err      error  // why what a file held, or a place for it, could not be used
	StoreErr error  // why something could not be stored, the last time that it was tried
}

// diskCache is a folder of compiled kernels, each in a file of its own, and what is on the way there. Files are read when their kernel is
// asked for, and written beside what else the process does.
type diskCache struct {
	root  string // of the folders of all devices, "" where nothing is kept
	id    cacheID
	limit int64

	mu      sync.Mutex
	state   DiskCache
	waiting map[string][]byte // files to be stored, or tried in vain, by name

	storing sync.Mutex // held by the one who writes
	written int64      // bytes since files were counted last
	swept   bool       // what killed processes left is removed
}

// at chooses the folder. One that is no folder is told at once; one that is not there will be made.
func (d *diskCache) at(root string) {
	if d.root = root; root == "" {
		return
	}
	d.state.Path = filepath.Join(root, d.id.folder())
	d.waiting = map[string][]byte{}
	old := d.state.Path + cacheSuffix // all of the device's kernels in one file, as they were kept once
	for _, path := range []string{old, old + ".lock"} {
		os.Remove(path)
	}
	info, err := os.Stat(d.state.Path)
	switch {
	case err == nil && !info.IsDir():
		d.state.Err = &fs.PathError{Op: "open", Path: d.state.Path, Err: errors.New("it is no folder")}
	case err != nil && !errors.Is(err, fs.ErrNotExist):
		d.state.Err = err
	}
}

// note keeps the first thing that was wrong with what is on disk.
func (d *diskCache) note(err error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.state.Err == nil {
		d.state.Err = err
	}
}

func (d *diskCache) file(name string) string { return filepath.Join(d.state.Path, name+cacheSuffix) }

// load gives what is stored under a name, nil for nothing.
func (d *diskCache) load(name string) *kept {
	if d.root == "" {
		return nil
	}
	k, err := readCache(d.file(name), d.id)
	if err != nil {
		d.note(err)
		return nil
	}
	if k != nil {
		d.mu.Lock()
		d.state.Loaded += len(k.data)
		d.mu.Unlock()
	}
	return k
}

// keep stores a kernel under a name, soon.
func (d *diskCache) keep(name string, k *kept) error {
	file := encodeCache(d.id, k)
	if len(file) > maxCacheSize {
		return fmt.Errorf("a kernel of %s is too large to be kept", humanBytes(uint64(len(file))))
	}
	d.mu.Lock()
	d.waiting[name] = file
	d.mu.Unlock()
	go func() {
		d.storing.Lock()
		defer d.storing.Unlock()
		_ = d.store(name) // told by DiskCache, and tried again by save
		d.count(d.limit / 16)
	}()
	return nil
}

// store writes what waits under a name, if it still does; d.storing is held.
func (d *diskCache) store(name string) error {
	d.mu.Lock()
	file, ok := d.waiting[name]
	d.mu.Unlock()
	if !ok {
		return nil
	}
	err := d.write(name, file)
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.state.StoreErr = err; err == nil {
		delete(d.waiting, name)
		d.written += int64(len(file))
	}
	return err
}

// write makes a file, alone among the processes that write where locks work: then temporary files are of no one that lives, and go.
func (d *diskCache) write(name string, file []byte) error {
	if err := os.MkdirAll(d.state.Path, 0o700); err != nil {
		return err
	}
	if unlock, err := diskfile.Lock(filepath.Join(d.root, lockFile)); err == nil {
		defer unlock()
		if !d.swept {
			removeTemporary(d.state.Path)
			d.swept = true
		}
	}
	return storeCache(d.file(name), file)
}

// count removes what is too much, where more than some bytes were written since that was looked at; d.storing is held.
func (d *diskCache) count(more int64) {
	if d.written <= more {
		return
	}
	d.written = 0
	if err := evict(d.root, d.limit); err != nil {
		d.note(err)
	}
}

// save waits until everything is stored, and tries again what could not be.
func (d *diskCache) save() (err error) {
	if d.root == "" {
		return nil
	}
	d.storing.Lock()
	defer d.storing.Unlock()
	d.mu.Lock()
	names := slices.Sorted(maps.Keys(d.waiting))
	d.mu.Unlock()
	for _, name := range names {
		if e := d.store(name); e != nil {
			err = e
		}
	}
	d.mu.Lock()
	d.state.StoreErr = err
	d.mu.Unlock()
	d.count(0)
	return err
}

// driverCache is what is needed of vk.PipelineCache.
type driverCache interface {
	Data() ([]byte, error)
	Close() error
}

// throughCache makes something in a driver's cache: of the words that are stored under a name, in a cache that is filled with what the
// driver made of them; or of words that prepare gives, in an empty cache, and then stores both. fromDisk says which. What a driver refuses,
// or does not give, costs compiling again.
func throughCache[C driverCache](d *diskCache, name string, prepare func() (prepared, error), open func(data []byte) (C, error),
	make func(C, *prepared) error) (fromDisk bool, err error) {
	k := d.load(name)
	var cache C
	if fromDisk = k != nil; fromDisk {
		if cache, err = open(k.data); err != nil { // the driver has its own opinion of the data
			d.note(fmt.Errorf("%s: %w", d.file(name), err))
			fromDisk = false
		}
	} else {
		k = &kept{}
		if k.prepared, err = prepare(); err != nil {
			return false, err
		}
	}
	if !fromDisk {
		if cache, err = open(nil); err != nil {
			return false, err
		}
	}
	if err = make(cache, &k.prepared); err == nil && !fromDisk {
		var e error
		if k.data, e = cache.Data(); e == nil {
			e = d.keep(name, k)
		}
		if e != nil {
			d.mu.Lock()
			d.state.StoreErr = e
			d.mu.Unlock()
		}
	}
	return fromDisk, errors.Join(err, cache.Close())
}

// DiskCache returns what became of the compiled kernels on disk. A file that cannot be used costs compile time, nothing else; it
// is replaced.
func (c *Context) DiskCache() DiskCache {
	if c == nil {
		return DiskCache{}
	}
	return c.disk.told()
}

// told is the state, which goroutines that store write.
func (d *diskCache) told() DiskCache {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.state
}

func (c *Context) openDiskCache() {
	f := c.facts
	c.disk.id = cacheID{Vendor: f.VendorID, Device: f.DeviceID, Driver: f.DriverVersion, UUID: f.PipelineCacheUUID}
	c.disk.limit = c.options.CacheBytes
	if c.options.NoDiskCache {
		return
	}
	root := c.options.CacheDir
	if root == "" {
		user, err := os.UserCacheDir()
		if err != nil {
			c.disk.note(err)
			return
		}
		root = filepath.Join(user, "vkattn", "pipelines")
	}
	c.disk.at(root)
}

// SaveCache waits until the kernels made so far are on disk, and tries again where they could not be stored. Close does it too.
func (c *Context) SaveCache() error {
	if err := c.usable(); err != nil {
		return err
	}
	return c.disk.save()
}
