package batches

import (
	"errors"
	"fmt"
	"runtime/debug"
)

// panicked is what a goroutine panicked with.
type panicked struct {
	value any
	stack []byte
}

func (p *panicked) Error() string { return fmt.Sprintf("panic: %v\n\n%s", p.value, p.stack) }

// guarded returns a function for a goroutine that returns a panic as an error. A panic in a goroutine would end the
// server; [repanic] brings it to the caller, who recovers from it as from that of any request.
func guarded(run func() error) func() error {
	return func() (err error) {
		defer func() {
			if v := recover(); v != nil {
				err = &panicked{v, debug.Stack()}
			}
		}()
		return run()
	}
}

// repanic panics with what a goroutine panicked with, if that is what the error says.
func repanic(err error) {
	var p *panicked
	if errors.As(err, &p) {
		panic(p.Error())
	}
}
