package pushing

import (
	"context"
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"stele.dev/stele/cmd/stele/internal/usage"
	"stele.dev/stele/core/resources/replicas"
)

func replica(name string, applied uint64, live bool) replicas.ReplicaObject {
	return replicas.ReplicaObject{ObjectMeta: metav1.ObjectMeta{Name: name}, Status: replicas.Status{Applied: applied, Live: live}}
}

// A push waits until all replicas have its revision, and names those that do not.
func TestWaiting(t *testing.T) {
	for name, tc := range map[string]struct {
		at    func(seconds int) ([]replicas.ReplicaObject, error)
		ready func(seconds int) error
		took  time.Duration
		want  string // the error
		code  int
		lines []string
	}{
		"all have it at once": {at: func(int) ([]replicas.ReplicaObject, error) {
			return []replicas.ReplicaObject{replica("a", 7, true), replica("b", 9, true)}, nil
		}},
		"one has it later": {at: func(s int) ([]replicas.ReplicaObject, error) {
			return []replicas.ReplicaObject{replica("a", 7, true), replica("b", map[bool]uint64{true: 7, false: 5}[s >= 10], true)}, nil
		}, took: 10 * time.Second, lines: []string{"waiting for revision 7: replica b has applied revision 5"}},
		"one never has it": {at: func(int) ([]replicas.ReplicaObject, error) {
			return []replicas.ReplicaObject{replica("a", 7, true), replica("b", 5, true)}, nil
		}, took: time.Minute, want: "the policy is in force, but after 1m0s not everywhere: replica b has applied revision 5", code: 4,
			lines: []string{"waiting for revision 7: replica b has applied revision 5"}},
		"one is dead": {at: func(int) ([]replicas.ReplicaObject, error) {
			return []replicas.ReplicaObject{replica("a", 7, true), replica("b", 7, false)}, nil
		}, took: time.Minute, want: "the policy is in force, but after 1m0s not everywhere: replica b does not renew its lease", code: 4,
			lines: []string{"waiting for revision 7: replica b does not renew its lease"}},
		"the server is not ready at first": {at: func(int) ([]replicas.ReplicaObject, error) {
			return []replicas.ReplicaObject{replica("a", 7, true)}, nil
		},
			ready: func(s int) error {
				if s < 3 {
					return errors.New("starting\nmore")
				}
				return nil
			}, took: 3 * time.Second, lines: []string{"waiting for revision 7: the server is not ready: starting"}},
		"nobody may list replicas": {at: func(int) ([]replicas.ReplicaObject, error) { return nil, errors.New("forbidden") }, took: time.Minute,
			want: "the policy is in force, but after 1m0s not everywhere: the replicas cannot be listed: forbidden", code: 4,
			lines: []string{"waiting for revision 7: the replicas cannot be listed: forbidden"}},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				start := time.Now()
				seconds := func() int { return int(time.Since(start) / time.Second) }
				var progress strings.Builder
				w := &waiting{
					replicas: func(context.Context) ([]replicas.ReplicaObject, error) { return tc.at(seconds()) },
					ready: func(context.Context) error {
						if tc.ready == nil {
							return nil
						}
						return tc.ready(seconds())
					},
					progress: &progress,
				}
				err := w.waitForReplicas(t.Context(), 7, time.Minute)
				text := ""
				if err != nil {
					text = err.Error()
				}
				if text != tc.want || usage.ExitCode(err) != tc.code || time.Since(start) != tc.took {
					t.Errorf("after %v: %q with exit code %d", time.Since(start), text, usage.ExitCode(err))
				}
				if got := strings.TrimSpace(progress.String()); got != strings.Join(tc.lines, "\n") {
					t.Errorf("progress:\n%s", got)
				}
			})
		})
	}
}
