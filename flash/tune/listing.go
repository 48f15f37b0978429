package tune

import (
	"errors"
	"sync/atomic"

	"github.com/vkattn/vkattn/flash"
	"github.com/vkattn/vkattn/pipeline"
)

// List gives what commands do, as data and as text: the kernels in order with their modules, constants, workgroups, push constants and
// bindings, by the names that they have in GLSL, copies, fills, and the barriers between them. Commands are made by a call of record, which
// for a [*flash.Recording] also gives them their tensors ([flash.Recording.Forward]). They are written into a command buffer that is not
// submitted: nothing runs. The caller closes them.
//
// What other goroutines record on the device meanwhile would be listed in their place.
func List[C Commands](d *flash.Device, record func() (C, error)) (_ *pipeline.Listing, err error) {
	const operation = "List"
	defer within.During(operation, &err)
	env, err := within.Env(d)
	if err != nil {
		return nil, err
	}
	if record == nil {
		return nil, badArgument(operation+" record", nil, "must be a function that makes commands")
	}
	var last atomic.Pointer[pipeline.Listing] // self-checks, which a plan may make on several goroutines, are listed too
	env.Ctx.List(last.Store)
	defer env.Ctx.List(nil)
	commands, err := record()
	if err != nil {
		return nil, err
	}
	if of := within.Recorded(commands); of != nil && of != d {
		return nil, badArgument(operation+" record", "commands of another device", "must make them of this one")
	}
	pool, err := env.Dev.NewCommandPool()
	if err != nil {
		return nil, within.Fail(d, err)
	}
	cmd, err := pool.Allocate()
	if err == nil {
		err = cmd.Begin(true)
	}
	if err == nil {
		last.Store(nil)
		if err = commands.Record(cmd.Handle()); errors.Is(err, flash.ErrCompileOnly) { // listed all the same
			err = nil
		}
		err = errors.Join(err, cmd.End())
	}
	if err = errors.Join(err, pool.Close()); err != nil {
		return nil, within.Fail(d, err)
	}
	l := last.Load()
	if l == nil {
		return nil, badArgument(operation+" record", "commands that were there before", "must make new ones in this call")
	}
	return l, nil
}
