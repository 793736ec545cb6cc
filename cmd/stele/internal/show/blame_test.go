package show

import (
	"bytes"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"stele.dev/stele/cmd/stele/internal/secrets"
	"stele.dev/stele/core/resources/blame"
)

func TestBlameIsYAMLWithWhatIsKnownOfEachFieldLeftOfIt(t *testing.T) {
	var b bytes.Buffer
	at := func(path string, value any, revision uint64) blame.Field {
		return blame.Field{Path: path, Value: value, Type: blame.Updated, Revision: revision, Time: "2026-11-20T14:00:00Z", Actor: "alice"}
	}
	early := blame.Field{Path: `metadata.annotations["example.com/a b"]`, Value: "true", Type: blame.Earlier, Note: blame.BeforeWindow}
	defaulted := at("spec.size", int64(1)<<60+1, 7)
	defaulted.Rule, defaulted.Source = "widgets.example.com", "widgets.cue:3"
	require.NoError(t, Blame(&Output{Writer: &b, utc: true}, &meta.RESTMapping{GroupVersionKind: schema.GroupVersionKind{Group: "example.com", Version: "v1", Kind: "Widget"}}, secrets.Fields{}, &blame.Blame{Status: blame.Status{Fields: []blame.Field{
		early, at("spec.args[0]", "a", 12), at("spec.args[1]", "two\nlines", 12), at("spec.limits", map[string]any{}, 12),
		at("spec.ports[name=http].name", "http", 12), at("spec.ports[name=http].port", int64(80), 120), defaulted,
	}}}))
	assert.Equal(t, `                                                                     │ apiVersion: example.com/v1
                                                                     │ kind: Widget
                                                                     │ metadata:
                                                                     │   annotations:
                                  before the window                  │     example.com/a b: "true"
                                                                     │ spec:
                                                                     │   args:
 12  2026-11-20 14:00:00Z  alice                                     │   - a
 12  2026-11-20 14:00:00Z  alice                                     │   - |-
                                                                     │     two
                                                                     │     lines
 12  2026-11-20 14:00:00Z  alice                                     │   limits: {}
                                                                     │   ports:
 12  2026-11-20 14:00:00Z  alice                                     │   - name: http
120  2026-11-20 14:00:00Z  alice                                     │     port: 80
  7  2026-11-20 14:00:00Z  alice  widgets.example.com widgets.cue:3  │   size: 1152921504606846977
`, b.String())
}
