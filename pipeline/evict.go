package pipeline

import (
	"cmp"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"time"
)

// The files of all devices and drivers together stay within a limit: those that nobody read for the longest time go first. A file's
// modification time tells when it was read last, to a day, so that reading seldom writes.

const (
	defaultCacheBytes = 256 << 20
	touchEvery        = 24 * time.Hour
	// a temporary file that old is that of a process that was killed, wherever it lies and with locks or without
	abandoned = time.Hour
	lockFile  = "lock" // of all that write below the same root
)

// What is removed is known by its name, whatever else lies in a folder that the user chose.
var (
	cacheFolder = regexp.MustCompile(`^[0-9a-f]{4,8}-[0-9a-f]{4,8}-[0-9a-f]{8}-[0-9a-f]{32}$`)
	cacheFile   = regexp.MustCompile(`^[0-9a-f]{64}\.bin$`)
	cacheTemp   = regexp.MustCompile(`^[0-9a-f]{64}\.bin\.[0-9]+\.tmp$`)
)

// removeTemporary removes the temporary files of a folder.
func removeTemporary(folder string) {
	files, err := os.ReadDir(folder)
	if err != nil {
		return
	}
	for _, f := range files {
		if cacheTemp.MatchString(f.Name()) {
			os.Remove(filepath.Join(folder, f.Name()))
		}
	}
}

// touchFile notes that a file was read.
func touchFile(f *os.File, path string) {
	now := time.Now()
	if info, err := f.Stat(); err == nil && now.Sub(info.ModTime()) > touchEvery {
		_ = os.Chtimes(path, now, now) // of a folder that cannot be written to nothing is removed either
	}
}

// entry is a file of the cache.
type entry struct {
	path string
	size int64
	used time.Time
}

// evict removes files, the least recently used first, until those below root fit into limit bytes, with some room to spare when anything is
// removed at all: what comes next does not have to look again. Files that are gone already, as other processes do the same, are none.
func evict(root string, limit int64) error {
	folders, err := os.ReadDir(root)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	var all []entry
	var sum int64
	for _, folder := range folders {
		if id, _ := strings.CutSuffix(strings.TrimSuffix(folder.Name(), ".lock"), cacheSuffix); !folder.IsDir() && id != folder.Name() &&
			cacheFolder.MatchString(id) {
			os.Remove(filepath.Join(root, folder.Name())) // all of a device's kernels in one file, as they were kept once
			continue
		}
		if !folder.IsDir() || !cacheFolder.MatchString(folder.Name()) {
			continue
		}
		files, err := os.ReadDir(filepath.Join(root, folder.Name()))
		if err != nil {
			continue
		}
		for _, f := range files {
			info, err := f.Info()
			if err != nil || !info.Mode().IsRegular() {
				continue
			}
			e := entry{filepath.Join(root, folder.Name(), f.Name()), info.Size(), info.ModTime()}
			switch {
			case cacheFile.MatchString(f.Name()):
				all, sum = append(all, e), sum+e.size
			case cacheTemp.MatchString(f.Name()) && time.Since(e.used) > abandoned:
				os.Remove(e.path)
			}
		}
	}
	if sum <= limit {
		return nil
	}
	slices.SortFunc(all, func(a, b entry) int { return cmp.Or(a.used.Compare(b.used), cmp.Compare(a.path, b.path)) })
	for _, e := range all {
		if sum <= limit-limit/8 {
			break
		}
		if err := os.Remove(e.path); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
		sum -= e.size
		os.Remove(filepath.Dir(e.path)) // where it was the last one; the folder of another driver, say
	}
	return nil
}
