package fromcue_test

import (
	"strings"
	"testing"
)

// TestValidate_KeepsSecrets checks for each kind of error that it does not show a secret.
func TestValidate_KeepsSecrets(t *testing.T) {
	for _, test := range []struct {
		name, schema string
		object       map[string]any
	}{
		{
			"a bound that is a secret",
			"spec: {pin!: int @stele(sensitive)\nother!: int & >pin}",
			map[string]any{"pin": int64(4711), "other": int64(1)},
		},
		{
			"a secret with a bound that is a field",
			"spec: {pin!: int & >other @stele(sensitive)\nother!: int}",
			map[string]any{"pin": int64(4711), "other": int64(5000)},
		},
		{
			"an incomplete value with a secret in it",
			"spec: {by: {pin!: string @stele(sensitive)} & ({card!: string} | {invoice!: true})\nn: *1 | int\nm: n + 1\n[string]: _}",
			map[string]any{"by": map[string]any{"pin": "4711"}},
		},
		{
			"a secret that tells alternatives apart",
			"spec: {pin!: \"a\" @stele(sensitive)\nx!: int} | {pin!: \"b\" @stele(sensitive)\ny!: int}",
			map[string]any{"pin": "4711", "x": int64(1)},
		},
	} {
		t.Run(test.name, func(t *testing.T) {
			n, diags := compileText(t, "#schema: "+test.schema)
			if diags != nil {
				t.Fatal(diags)
			}
			errs := reloaded(t, n).Validate(map[string]any{"spec": test.object})
			if len(errs) == 0 {
				t.Fatal("accepted")
			}
			if text := errs.ToAggregate().Error(); strings.Contains(text, "4711") {
				t.Error(text)
			}
		})
	}
}
