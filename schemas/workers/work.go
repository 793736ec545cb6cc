package workers

import (
	"errors"
	"io"
	"os"
	"runtime/debug"
	"runtime/metrics"
	"time"

	"stele.dev/stele/schemas/interpreter"
)

const (
	// addressSpace bounds by how much that of a worker may grow.
	addressSpace = 1 << 30
	// maxStack bounds the stack: a value in which things nest as deep as JSON may is well
	// below that.
	maxStack = 128 << 20
	// grace is for how long a worker goes on after the deadline of a question. It is only
	// ever needed if there is nobody to kill it.
	grace = 3 * time.Second
)

// Work is what a worker does: it limits what this process may use, and answers questions
// until there are none more. Then its error is nil.
func Work(in io.Reader, out io.Writer) error {
	debug.SetMaxStack(maxStack)
	limit()
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

// heap is how many bytes the objects of this process take, garbage among them.
func heap() uint64 {
	samples := []metrics.Sample{{Name: "/memory/classes/heap/objects:bytes"}}
	metrics.Read(samples)
	return samples[0].Value.Uint64()
}
