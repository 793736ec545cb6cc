package planning

import (
	"fmt"
	"io"
	"sync"
	"time"
)

// patience is how long a plan may take before its progress is shown.
const patience = 2 * time.Second

// progress shows a line after a while, if output goes to a terminal. The function that it returns removes the line.
func progress(out io.Writer, text string) (done func()) {
	if out == nil {
		return func() {}
	}
	var mu sync.Mutex
	ended := false
	shown := false
	timer := time.AfterFunc(patience, func() {
		mu.Lock()
		defer mu.Unlock()
		if !ended {
			shown = true
			fmt.Fprintf(out, "\r\x1b[K%s", text)
		}
	})
	return func() {
		timer.Stop()
		mu.Lock()
		defer mu.Unlock()
		ended = true
		if shown {
			fmt.Fprint(out, "\r\x1b[K")
		}
	}
}
