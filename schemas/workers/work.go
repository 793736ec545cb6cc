package workers

import (
	"errors"
	"io"
	"os"
	"runtime/debug"
	"runtime/metrics"
	"time"

	"stele.dev/stele/limits/child"
	"stele.dev/stele/schemas/interpreter"
)

const (
	// addressSpace is the maximum growth of a worker's address space.
	addressSpace = 1 << 30
	// maxStack is the maximum stack size. A value with JSON's maximum nesting needs much less.
	maxStack = 128 << 20
	// grace is how long a worker continues after the deadline of a question, before it ends itself.
	// Normally the pool kills it earlier.
	grace = 3 * time.Second
)

// Work runs a worker: it limits the resources of this process, takes its access to files and to the network (see
// [child.Sandbox]), and answers questions until the input ends. Then it returns nil.
func Work(in io.Reader, out io.Writer) error {
	debug.SetMaxStack(maxStack)
	limit()
	if err := child.Sandbox(); err != nil {
		return err
	}
	if err := write(out, answer{}); err != nil {
		return err
	}
	interpreter := interpreter.New()
	for {
		var q question
		if err := read(in, &q); errors.Is(err, io.EOF) {
			return nil
		} else if err != nil {
			return err
		}
		late := time.AfterFunc(q.Within+grace, func() { os.Exit(1) })
		verdict := interpreter.Evaluate(q.Expression, q.Value)
		late.Stop()
		if err := write(out, answer{q.ID, verdict, heap()}); err != nil {
			return err
		}
	}
}

// heap returns the size in bytes of this process's heap objects, including garbage.
func heap() uint64 {
	samples := []metrics.Sample{{Name: "/memory/classes/heap/objects:bytes"}}
	metrics.Read(samples)
	return samples[0].Value.Uint64()
}
