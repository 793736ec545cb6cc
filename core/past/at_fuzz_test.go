package past_test

import (
	"bytes"
	"context"
	"fmt"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"testing"
	"time"

	"stele.dev/stele/core/run/plane/planetest"
)

// Whatever stands behind /at/, and whatever revision a read names: it is answered for what it is or
// refused as what it is not, in the same way when it is asked again, and changes nothing.
func FuzzMoments(f *testing.F) {
	p := planetest.NewRestored(f)
	p.Activate(f, planetest.Graded)
	p.Must(f, 201, "POST", planetest.WidgetsPath, planetest.Widget("after", 1))
	p.Must(f, 200, "PATCH", planetest.WidgetsPath+"/after", `{"spec":{"grade":"b"}}`, "Content-Type", planetest.MergePatch)
	p.Activate(f, planetest.Bundle)
	tip := p.Committer.Tip().Revision()
	now := time.Now().UTC()
	methods := []string{"GET", "GET", "GET", "GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS", "FROB"}
	for i, moment := range []string{
		fmt.Sprint(tip), fmt.Sprint(tip - 1), fmt.Sprint(tip + 1), "1", "0", "-1", "", "+5", "007", "18446744073709551615", "18446744073709551616", "9223372036854775808", fmt.Sprint(p.Lost), fmt.Sprint(p.Next),
		now.Format(time.RFC3339), now.Format(time.RFC3339Nano), now.Add(-time.Hour).Format(time.RFC3339), now.Add(time.Hour).Format(time.RFC3339), now.In(time.FixedZone("", 3600)).Format(time.RFC3339),
		"0000-01-01T00:00:00Z", "9999-12-31T23:59:59.999999999Z", "2026-02-30T00:00:00Z", "2026-01-01T24:00:00Z", "2026-01-01t00:00:00z", "2026-01-01T00:00:00", "1969-12-31T23:59:59-23:59",
		"yesterday", "10m", "now", "1e3", "0x10", "1_000", " 5", "5 ", "٣", "\x00", "\xff", "%31", "..", "5/..", "5/../6", "at/5", strings.Repeat("9", 4096),
	} {
		rest, query := planetest.WidgetsPath, ""
		switch i % 8 {
		case 1:
			rest = planetest.WidgetsPath + "/after/status"
		case 2:
			rest, query = "/apis/example.com/v1/widgets", "limit=1&labelSelector=a"
		case 3:
			rest, query = "/apis/log.stele.dev/v1/changes", "fieldSelector=object.resource%3Dwidgets"
		case 4:
			rest = "/openapi/v3/apis/example.com/v1"
		case 5:
			rest, query = planetest.WidgetsPath, "watch=1&allowWatchBookmarks=true"
		case 6:
			rest = "/at/5" + planetest.WidgetsPath
		case 7:
			rest = "/apis/events.k8s.io/v1/watch/events"
		}
		f.Add(uint8(i), moment, rest, query)
		f.Add(uint8(0), fmt.Sprint(tip-1), rest, "resourceVersionMatch=Exact&resourceVersion="+moment)
		f.Add(uint8(0), "", strings.TrimPrefix(rest, "/"), "resourceVersionMatch=Exact&resourceVersion="+moment)
		f.Add(uint8(0), "", strings.TrimPrefix(planetest.WidgetsPath, "/")+"/after", "resourceVersionMatch=Exact&resourceVersion="+moment)
	}
	f.Fuzz(func(t *testing.T, method uint8, moment, rest, query string) {
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		if values, _ := url.ParseQuery(query); values.Get("timeout") != "" {
			return // it takes as long as it likes
		}
		verb, path := methods[int(method)%len(methods)], "/at/"+moment+rest
		if moment == "" && !strings.HasPrefix(rest, "/") { // of the present, and read
			verb, path = "GET", "/"+rest
		}
		before := p.Committer.Tip().Revision()
		ask := func() planetest.Answer {
			q := planetest.Request(verb, "/", "")
			q.URL.Path, q.URL.RawQuery = path, "timeoutSeconds=-1&"+query
			a := p.Serve(q.WithContext(ctx))
			if ctx.Err() != nil {
				t.Fatalf("%s has not ended", q.URL)
			}
			return a
		}
		a := ask()
		switch {
		case a.Code == http.StatusGatewayTimeout:
			if !strings.Contains(string(a.Body), "Too large resource version") {
				t.Fatalf("%s", a)
			}
		case a.Code >= 400 && strings.HasPrefix(a.Header.Get("Content-Type"), "application/json") && verb != "HEAD": // what is no resource says it in plain text
			planetest.CheckAnswer(t, a)
		case a.Code >= 500:
			t.Fatalf("%s", a)
		}
		if after := p.Committer.Tip().Revision(); after != before {
			t.Fatalf("something was written: %s", a)
		}
		revision, err := strconv.ParseUint(a.Header.Get("Stele-Revision"), 10, 64)
		if err != nil || a.Code != http.StatusOK {
			return
		}
		if revision > before {
			t.Fatalf("%d has not been: %s", revision, a)
		}
		if again := ask(); again.Code != a.Code || !bytes.Equal(again.Body, a.Body) {
			t.Fatalf("it was answered with\n%s\nand then with\n%s", a, again)
		}
	})
}
