package core_test

import (
	"bytes"
	"context"
	"encoding/json"
	"net/http"
	"strings"
	"testing"
	"time"
)

// Whatever the query of a list or a watch: it is answered as bad input or for what it is,
// and never with more than there is.
func FuzzReadQuery(f *testing.F) {
	p := newPlane(f)
	fill(f, p, 3)
	token := p.must(f, 200, "GET", widgetsPath+"?limit=1", "").field("metadata", "continue").(string)
	for _, query := range []string{
		"limit=9223372036854775807", "limit=-9223372036854775808", "limit=1&continue=" + token, "continue=" + token + "&resourceVersion=0", "continue=e30",
		"resourceVersion=0", "resourceVersion=18446744073709551615", "resourceVersion=18446744073709551616&resourceVersionMatch=Exact", "resourceVersion=-0",
		"resourceVersion=5&resourceVersionMatch=Exact&limit=1", "resourceVersion=5&resourceVersionMatch=NotOlderThan", "resourceVersion=%00", "resourceVersion=1&resourceVersion=x",
		"sendInitialEvents=true&resourceVersionMatch=NotOlderThan&allowWatchBookmarks=true&watch=1", "sendInitialEvents=maybe", "allowWatchBookmarks=", "watch=0", "watch=%ff",
		"labelSelector=a+in+(b,c),!d,e>5", "labelSelector=" + strings.Repeat("a,", 100), "fieldSelector=metadata.name=w00,spec.color!=red", "fieldSelector=metadata.name%3D..%2F..", `fieldSelector=a\,=b`,
		"timeoutSeconds=x", "timeout=1ns", "timeout=-1h", "pretty=1", "includeObject=None", "shardSelector=x", "export=1", "&&==;%", "%zz",
	} {
		f.Add(query)
	}
	f.Fuzz(func(t *testing.T, query string) {
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		for _, path := range []string{widgetsPath, "/apis/example.com/v1/watch/namespaces/default/widgets", "/api/v1/watch/namespaces", "/apis/rbac.authorization.k8s.io/v1/clusterroles", changesPath, widgetsPath + "/w00"} {
			q := request("GET", path, "")
			if q.URL.RawQuery = query; q.URL.Query().Get("timeout") != "" {
				continue // what takes as long as it likes
			}
			// The first of several is the one that counts: watches end as soon as they have begun.
			q.URL.RawQuery = "timeoutSeconds=-1&" + query
			a := p.serve(q.WithContext(ctx))
			if ctx.Err() != nil {
				t.Fatalf("%s has not ended", path)
			}
			if len(a.body) > 1<<20 {
				t.Fatalf("%s: %d bytes", path, len(a.body))
			}
			if a.code == http.StatusGatewayTimeout {
				if !strings.Contains(string(a.body), "ResourceVersionTooLarge") {
					t.Fatalf("%s: %s", path, a)
				}
			} else if a.code != http.StatusOK {
				checkAnswer(t, a)
			} else if d := json.NewDecoder(bytes.NewReader(a.body)); true {
				for d.More() {
					var event struct {
						Type   string
						Object struct{ Code any }
					}
					if err := d.Decode(&event); err != nil || event.Type == "ERROR" && event.Object.Code == 500.0 {
						t.Fatalf("%s: %v %s", path, err, a)
					}
				}
			}
		}
	})
}
