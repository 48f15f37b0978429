package pipeline

import (
	"errors"

	"github.com/vkattn/vkattn/vk"
)

// descriptorSets hands out one descriptor set per dispatch of a recording and keeps them from one Reset to the next. Sets of
// pipelines with as many bindings are interchangeable, since their layouts are identically defined.
type descriptorSets struct {
	dev         *vk.Device
	maxSets     int
	maxBindings int
	pools       []*vk.DescriptorPool
	sets        int       // that the newest pool has left
	bindings    int       // the same
	byCount     []setList // by number of bindings
}

type setList struct {
	sets []boundSet
	used int
}

// boundSet is a set with what it was last written to hold. A buffer is known by its object, not by its handle, which the
// driver may give again to another one.
type boundSet struct {
	set   vk.DescriptorSet
	bound []vk.BufferBinding
}

func (d *descriptorSets) reset() {
	for i := range d.byCount {
		d.byCount[i].used = 0
	}
}

// next returns a set that holds the given bindings.
func (d *descriptorSets) next(k *Kernel, access []Access) (vk.DescriptorSet, error) {
	n := len(access)
	for len(d.byCount) <= n {
		d.byCount = append(d.byCount, setList{})
	}
	l := &d.byCount[n]
	if l.used == len(l.sets) {
		set, err := d.allocate(k)
		if err != nil {
			return set, err
		}
		l.sets = append(l.sets, boundSet{set: set, bound: make([]vk.BufferBinding, n)})
	}
	s := &l.sets[l.used]
	same := true
	for i := range access {
		b := vk.BufferBinding(access[i].Binding)
		same = same && s.bound[i] == b
		s.bound[i] = b
	}
	if !same {
		if err := d.dev.UpdateDescriptors(s.set, s.bound); err != nil {
			clear(s.bound)
			return s.set, err
		}
	}
	l.used++
	return s.set, nil
}

// allocate takes a set of a kernel's bindings from the newest pool. A pool holds one recording of the declared size; recordings that differ
// from Reset to Reset in how many bindings their dispatches have may need another. The pool is not asked for what it has not left: that is
// no use of it.
func (d *descriptorSets) allocate(k *Kernel) (vk.DescriptorSet, error) {
	if n := len(d.pools); n > 0 && d.sets > 0 && d.bindings >= k.bindings {
		set, err := d.take(k)
		if err == nil || !(errors.Is(err, vk.ErrOutOfPoolMemory) || errors.Is(err, vk.ErrFragmentedPool)) {
			return set, err
		}
	}
	p, err := d.dev.NewDescriptorPool(d.maxSets, d.maxBindings)
	if err != nil {
		return vk.DescriptorSet{}, err
	}
	d.pools, d.sets, d.bindings = append(d.pools, p), d.maxSets, d.maxBindings
	return d.take(k)
}

// take asks the newest pool.
func (d *descriptorSets) take(k *Kernel) (vk.DescriptorSet, error) {
	set, err := d.pools[len(d.pools)-1].Allocate(k.pipeline)
	if err == nil {
		d.sets, d.bindings = d.sets-1, d.bindings-k.bindings
	}
	return set, err
}

func (d *descriptorSets) close() (err error) {
	for _, p := range d.pools {
		err = errors.Join(err, p.Close())
	}
	d.pools, d.byCount = nil, nil
	return err
}
