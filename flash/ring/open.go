package ring

import (
	"errors"
	"fmt"
	"strconv"

	"github.com/vkattn/vkattn/flash"
	"github.com/vkattn/vkattn/vk"
)

// Open opens a device for each of some ranks in this process: every GPU once, in the order of [flash.Devices], or where there is none the
// CPU. With share, ranks beyond the number of devices open one that others have too: nothing gets faster by that, but programs can be
// tried. The devices are the caller's to close.
//
// The error is an [*flash.ArgumentError] where there are more ranks than devices, and none are shared.
func Open(ranks int, share bool, opts ...flash.DeviceOption) (_ []*flash.Device, err error) {
	turns, err := turnsOf(ranks, share, opts)
	if err != nil {
		return nil, err
	}
	var out []*flash.Device
	for _, index := range turns {
		d, e := openIndex(index, opts)
		if e != nil {
			for _, d := range out {
				e = errors.Join(e, d.Close())
			}
			return nil, e
		}
		out = append(out, d)
	}
	return out, nil
}

// OpenRank opens the device that [Open] would open for one of the ranks, from 0 on: of processes that share a host, each opens its own.
// ranks is their number on this host, and share as in Open. The device is the caller's to close; the error is Open's.
func OpenRank(rank, ranks int, share bool, opts ...flash.DeviceOption) (*flash.Device, error) {
	if rank < 0 || rank >= ranks {
		return nil, badArgument("rank", rank, "must be from 0 to %d, of %d ranks", ranks-1, ranks)
	}
	turns, err := turnsOf(ranks, share, opts)
	if err != nil {
		return nil, err
	}
	return openIndex(turns[rank], opts)
}

func openIndex(index int, opts []flash.DeviceOption) (*flash.Device, error) {
	return flash.Open(append(opts[:len(opts):len(opts)], flash.WithCopyQueues(), flash.WithDevice(strconv.Itoa(index)))...)
}

// turnsOf is the number of the device of each rank.
func turnsOf(ranks int, share bool, opts []flash.DeviceOption) (turns []int, err error) {
	if ranks < 1 {
		return nil, badArgument("ranks", ranks, "must be at least 1")
	}
	infos, err := flash.Devices(opts...)
	if err != nil {
		return nil, err
	}
	var gpus []int
	for _, d := range infos {
		if d.Facts.Type != vk.DeviceCPU {
			gpus = append(gpus, d.Index)
		}
	}
	if len(gpus) == 0 && len(infos) > 0 {
		gpus = []int{infos[0].Index}
	}
	if len(gpus) == 0 {
		return nil, fmt.Errorf("%w: there is none for %d ranks", flash.ErrNoDevice, ranks)
	}
	if ranks > len(gpus) && !share {
		return nil, badArgument("ranks", ranks, "must be at most %d, a device each, unless ranks share devices", len(gpus))
	}
	for i := range ranks {
		turns = append(turns, gpus[i%len(gpus)])
	}
	return turns, nil
}
