package pipeline

import (
	"errors"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
)

// DiskCache says what became of the pipeline cache file.
type DiskCache struct {
	Path     string // empty when there is none
	Loaded   int    // bytes of usable data found when the context was made
	Err      error  // why what the file held, or a place for it, could not be used
	StoreErr error  // why the last store failed
}

// driverCache is what a diskCache needs of vk.PipelineCache.
type driverCache[C any] interface {
	Merge(other ...C) error
	Data() ([]byte, error)
	Close() error
}

// diskCache is the pipeline cache in memory and its file.
type diskCache[C driverCache[C]] struct {
	cache C
	open  func(data []byte) (C, error) // makes a driver's cache
	id    cacheID
	dirty atomic.Bool // there is something to store

	mu    sync.Mutex // one store at a time
	state DiskCache
}

// cachePath is the file of a device's pipelines, in dir or, when that is empty, in the user's cache directory.
func cachePath(dir string, id cacheID) (string, error) {
	if dir == "" {
		user, err := os.UserCacheDir()
		if err != nil {
			return "", err
		}
		dir = filepath.Join(user, "vkattn", "pipelines")
	}
	return filepath.Join(dir, id.fileName()), nil
}

// load makes the cache in memory of what the file holds; a path that is empty keeps it in memory only. Only a driver that
// makes no cache at all is an error. A file that cannot be used is replaced by the next store, and there is one.
func (d *diskCache[C]) load(path string) (err error) {
	d.state.Path = path
	var data []byte
	if path != "" {
		data, d.state.Err = readCache(path, d.id)
	}
	d.cache, err = d.open(data)
	if err != nil && len(data) > 0 { // the driver has its own opinion of the data
		d.state.Err, data = err, nil
		d.cache, err = d.open(nil)
	}
	d.state.Loaded = len(data)
	d.dirty.Store(d.state.Err != nil)
	return err
}

// save puts what the cache in memory holds into the file, beside what other processes stored there.
func (d *diskCache[C]) save() error {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.state.Path == "" || !d.dirty.Swap(false) {
		return nil
	}
	var refused error
	damage, err := storeCache(d.state.Path, d.id, func(onDisk []byte) ([]byte, error) {
		if len(onDisk) > 0 {
			refused = d.merge(onDisk)
		}
		return d.cache.Data()
	})
	if d.state.Err == nil {
		d.state.Err = errors.Join(damage, refused)
	}
	if d.state.StoreErr = err; err != nil {
		d.dirty.Store(true)
	}
	return err
}

// merge adds data of another process to the cache in memory.
func (d *diskCache[C]) merge(data []byte) error {
	other, err := d.open(data)
	if err != nil {
		return err
	}
	return errors.Join(d.cache.Merge(other), other.Close())
}

// DiskCache returns what became of the pipeline cache file. A file that cannot be used costs compile time, nothing else; it
// is replaced by the next store.
func (c *Context) DiskCache() DiskCache {
	if c == nil {
		return DiskCache{}
	}
	c.disk.mu.Lock()
	defer c.disk.mu.Unlock()
	return c.disk.state
}

func (c *Context) openDiskCache() error {
	f := c.facts
	c.disk.id = cacheID{Vendor: f.VendorID, Device: f.DeviceID, Driver: f.DriverVersion, UUID: f.PipelineCacheUUID}
	c.disk.open = c.dev.NewPipelineCache
	if c.options.NoDiskCache {
		return c.disk.load("")
	}
	path, nowhere := cachePath(c.options.CacheDir, c.disk.id)
	err := c.disk.load(path)
	if nowhere != nil {
		c.disk.state.Err = nowhere
	}
	return err
}

// SaveCache stores the pipelines made so far on disk, merged with what other processes stored meanwhile. Close does it too.
func (c *Context) SaveCache() error {
	if err := c.usable(); err != nil {
		return err
	}
	return c.saveCache()
}

func (c *Context) saveCache() error {
	if c.dev.Lost() != nil {
		return nil
	}
	return c.disk.save()
}
