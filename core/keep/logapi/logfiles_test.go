package logapi_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"k8s.io/apiserver/pkg/authentication/user"
	"stele.dev/stele/core/auth/authn"
	"stele.dev/stele/core/run/plane"
	"stele.dev/stele/core/run/plane/planetest"
	"stele.dev/stele/eventlog"
	"stele.dev/stele/eventlog/backup"
)

const bundle = `
package test
import "stele.dev/policy"

bundle: policy.#Bundle & {
	cluster: "test"
	teams: t: {
		contact: "#t", groups: ["*"], namespaces: ["*"]
		rbac: {
			clusterRoles: backup: rules: paths: {nonResourceURLs: ["/log/*"], verbs: ["get"]}
			bindings: backups: {clusterRole: "backup", subjects: [{group: "backups"}], namespaces: ["*"]}
		}
	}
}
`

// ask sends a request of a user in a group to a plane.
func ask(t *testing.T, p *planetest.Plane, group, path string, header ...string) *httptest.ResponseRecorder {
	w := httptest.NewRecorder()
	q := httptest.NewRequest(http.MethodGet, path, nil)
	for i := 0; i+1 < len(header); i += 2 {
		q.Header.Set(header[i], header[i+1])
	}
	p.ServeHTTP(w, q.WithContext(authn.WithUser(t.Context(), &user.DefaultInfo{Name: "u", Groups: []string{group}})))
	return w
}

func stateOf(t *testing.T, p *planetest.Plane) *backup.State {
	t.Helper()
	w := ask(t, p, "backups", "/log/state")
	require.Equal(t, 200, w.Code, w.Body)
	s := &backup.State{}
	require.NoError(t, json.Unmarshal(w.Body.Bytes(), s))
	return s
}

func TestTheStoredLogIsAStreamOfBatches(t *testing.T) {
	p := planetest.Start(t, planetest.Options{Bundle: bundle})
	s := stateOf(t, p)
	w := ask(t, p, "backups", fmt.Sprintf("/log/batches?after=0&until=%d", s.Head.Revision))
	require.Equal(t, 200, w.Code)
	stored, err := p.Log.Stored(t.Context(), 1)
	require.NoError(t, err)
	at, err := backup.ReadBatches(w.Body, p.Log.Start(), func(b *eventlog.Batch, value []byte) error {
		assert.Equal(t, stored[0].Value, value, "verbatim")
		stored = stored[1:]
		return nil
	})
	require.NoError(t, err)
	assert.Equal(t, s.Head, backup.PositionOf(at))
}

func TestOnlyWhoMayReadsTheStoredLog(t *testing.T) {
	p := planetest.Start(t, planetest.Options{Bundle: bundle})
	for path, want := range map[string]int{
		"/log/batches?after=x&until=5": 400, "/log/batches": 400, "/log/segments/none.log": 404, "/log/segments/..%2flog.id": 404,
		"/log/checkpoints/none": 404, fmt.Sprintf("/at/%d/log/state", stateOf(t, p).Head.Revision): 404,
	} {
		assert.Equal(t, want, ask(t, p, "backups", path).Code, path)
		assert.Equal(t, 403, ask(t, p, "others", path).Code, path)
	}
	assert.Equal(t, 403, ask(t, p, "others", "/log/state").Code)
}

func TestADownloadOfASegmentGoesOnWhereItBrokeOff(t *testing.T) {
	p := planetest.Start(t, planetest.Options{Bundle: bundle, Config: plane.Config{Segments: plane.Segments{Revisions: 4}}})
	var s *backup.State
	require.Eventually(t, func() bool { s = stateOf(t, p); return len(s.Segments) > 0 }, 30*time.Second, 10*time.Millisecond)
	for _, f := range s.Segments[0].Files {
		whole := ask(t, p, "backups", "/log/"+f.Name)
		require.Equal(t, 200, whole.Code)
		content := whole.Body.Bytes()
		require.Len(t, content, int(f.Size))
		rest := ask(t, p, "backups", "/log/"+f.Name, "Range", "bytes=10-")
		assert.Equal(t, http.StatusPartialContent, rest.Code)
		assert.True(t, bytes.Equal(content[10:], rest.Body.Bytes()))
	}
}
