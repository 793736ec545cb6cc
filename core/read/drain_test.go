package read_test

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"testing"
	"testing/synctest"
	"time"

	"stele.dev/stele/core/run/plane/planetest"
	"stele.dev/stele/eventlog/memlog"
)

// Watches end one after the other when the server stops, each with a bookmark at the newest revision, so that their
// clients do not all go on elsewhere in one moment. Those that are still open hear of what happens meanwhile.
func TestWatchesEndOneAfterTheOther(t *testing.T) {
	for watches, longest := range map[int]time.Duration{1: 0, 21: 200 * time.Millisecond, 601: 5 * time.Second} {
		t.Run(fmt.Sprint(watches), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				p := planetest.StartReplica(t, new(memlog.Store).Open(nil), 0)
				p.Bootstrap(t, planetest.Bundle)
				query := fmt.Sprintf("%s&resourceVersion=%d", planetest.WatchWidgets, p.Committer.Tip().Revision())
				ws := make([]*planetest.Watching, watches)
				for i := range ws {
					ws[i] = p.Watch(t, query)
				}
				synctest.Wait()
				began := time.Now()
				drained := make(chan time.Duration, 1)
				go func() {
					p.DrainSpread(t.Context())
					drained <- time.Since(began)
				}()
				time.Sleep(longest * 9 / 20)
				p.Must(t, 201, "POST", planetest.WidgetsPath, planetest.Widget("meanwhile", 1))
				newest := p.Committer.Tip().Revision()
				late := 0
				time.Sleep(longest)
				for _, w := range ws {
					<-w.Ended
					close(w.Events)
					var got []planetest.WatchEvent
					for e := range w.Events {
						got = append(got, e)
					}
					text := planetest.What(got)
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
				if w := p.Watch(t, query); w != nil { // one that comes late
					<-w.Ended
				}
			})
		})
	}
}

// A client that does not take what it is sent does not keep the server from stopping.
func TestADrainEndsWithItsContext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := planetest.StartReplica(t, new(memlog.Store).Open(nil), 0)
		p.Bootstrap(t, planetest.Bundle)
		body, writer := io.Pipe()
		response := &planetest.PipeResponse{Headers: http.Header{}, Code: make(chan int, 1), W: writer}
		ended := make(chan struct{})
		go func() {
			defer close(ended)
			p.ServeHTTP(response, planetest.Request("GET", planetest.WatchWidgets, ""))
		}()
		<-response.Code
		p.Must(t, 201, "POST", planetest.WidgetsPath, planetest.Widget("unread", 1))
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
