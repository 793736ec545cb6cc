package progress_test

import (
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"stele.dev/stele/cmd/stele/internal/progress"
)

// What takes long is said in lines where there is no terminal, and what is done soon says nothing.
func TestWhatTakesLongIsSaid(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var said strings.Builder
		ctx, done := progress.Track(t.Context(), &said, false)
		progress.Doing(ctx, "compiling %d of %d", 1, 9)
		time.Sleep(9 * time.Second)
		synctest.Wait()
		if said.Len() > 0 {
			t.Errorf("at once: %q", said.String())
		}
		time.Sleep(2 * time.Second)
		progress.Doing(ctx, "uploading")
		time.Sleep(10 * time.Second)
		progress.Doing(ctx, "")
		time.Sleep(20 * time.Second)
		synctest.Wait()
		done()
		const want = "compiling 1 of 9 (10s)\nuploading (20s)\n"
		if said.String() != want {
			t.Errorf("said %q, want %q", said.String(), want)
		}
		time.Sleep(time.Minute)
		if said.String() != want {
			t.Errorf("after the end: %q", said.String())
		}
	})
	progress.Doing(t.Context(), "nothing, because nobody is told")
}

// On a terminal it is one line, which is gone before the command prints something.
func TestATerminalHasOneLineOfIt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var said strings.Builder
		ctx, done := progress.Track(t.Context(), &said, true)
		progress.Doing(ctx, "compiling")
		time.Sleep(2600 * time.Millisecond)
		synctest.Wait()
		progress.Doing(ctx, "")
		done()
		if want := "\r\x1b[Kcompiling (2s)\r\x1b[Kcompiling (3s)\r\x1b[K"; said.String() != want {
			t.Errorf("drawn %q, want %q", said.String(), want)
		}
	})
}
