package core_test

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"testing"
	"testing/synctest"
	"time"

	"stele.dev/stele/eventlog/memlog"
)

// Watches end one after the other when the server stops, each with a bookmark at the newest revision, so that their
// clients do not all go on elsewhere in one moment. Those that are still open hear of what happens meanwhile.
func TestWatchesEndOneAfterTheOther(t *testing.T) {
	for watches, longest := range map[int]time.Duration{1: 0, 21: 200 * time.Millisecond, 601: 5 * time.Second} {
		t.Run(fmt.Sprint(watches), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				p := start(t, new(memlog.Store).Open(nil), 0)
				p.bootstrap(t, bundle)
				query := fmt.Sprintf("%s&resourceVersion=%d", watchWidgets, p.committer.Tip().Revision())
				ws := make([]*watching, watches)
				for i := range ws {
					ws[i] = p.watch(t, query)
				}
				synctest.Wait()
				began := time.Now()
				drained := make(chan time.Duration, 1)
				go func() {
					p.DrainSpread(t.Context())
					drained <- time.Since(began)
				}()
				time.Sleep(longest * 9 / 20)
				p.must(t, 201, "POST", widgetsPath, widget("meanwhile", 1))
				newest := p.committer.Tip().Revision()
				late := 0
				time.Sleep(longest)
				for _, w := range ws {
					<-w.ended
					close(w.events)
					var got []watchEvent
					for e := range w.events {
						got = append(got, e)
					}
					text := what(got)
					if text == "ADDED meanwhile, BOOKMARK" {
						late++
						if at := got[1].Object["metadata"].(map[string]any)["resourceVersion"]; at != fmt.Sprint(newest) {
							t.Errorf("its last bookmark is at %v, not at %d", at, newest)
						}
					} else if text != "BOOKMARK" {
						t.Errorf("a watch got %q", text)
					}
				}
				if took := <-drained; took > longest || took < longest*9/10 {
					t.Errorf("the watches ended within %v, not within %v", took, longest)
				}
				if watches > 1 && (late < watches/3 || late > watches*2/3) {
					t.Errorf("%d of %d were open in the middle", late, watches)
				}
				if w := p.watch(t, query); w != nil { // one that comes late
					<-w.ended
				}
			})
		})
	}
}

// A client that does not take what it is sent does not keep the server from stopping.
func TestADrainEndsWithItsContext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := start(t, new(memlog.Store).Open(nil), 0)
		p.bootstrap(t, bundle)
		body, writer := io.Pipe()
		response := &pipeResponse{header: http.Header{}, code: make(chan int, 1), w: writer}
		ended := make(chan struct{})
		go func() {
			defer close(ended)
			p.ServeHTTP(response, request("GET", watchWidgets, ""))
		}()
		<-response.code
		p.must(t, 201, "POST", widgetsPath, widget("unread", 1))
		synctest.Wait()
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		began := time.Now()
		p.DrainSpread(ctx)
		if took := time.Since(began); took != time.Second {
			t.Errorf("it took %v", took)
		}
		body.Close()
		<-ended
	})
}
