package schemas_test

import (
	"strings"
	"testing"

	"stele.dev/stele/schemas"
)

// The errors of a Scale say what is wrong with a field, and quote neither its value nor that of a parent, which may be secret.
func TestScalesQuoteNoValues(t *testing.T) {
	s := &schemas.Scale{SpecReplicasPath: ".spec.size", StatusReplicasPath: ".status.size", LabelSelectorPath: ".status.selector"}
	const secret = "hunter2"
	for _, value := range []any{secret, []any{map[string]any{"token": secret}}, map[string]any{"size": secret}, map[string]any{"size": map[string]any{"token": secret}}, map[string]any{"selector": []any{secret}}} {
		object := map[string]any{"spec": value, "status": value}
		errs := s.Validate(object, false)
		if text := errs.ToAggregate().Error(); len(errs) < 1 || strings.Contains(text, secret) || !strings.Contains(text, "accessor error") {
			t.Errorf("%v: %v", value, errs)
		}
		if _, err := s.Of(object); err == nil || strings.Contains(err.Error(), secret) {
			t.Errorf("%v: %v", value, err)
		}
	}
	for _, object := range []map[string]any{{}, {"spec": nil}, {"spec": map[string]any{}}, {"spec": map[string]any{"size": int64(3)}, "status": map[string]any{"selector": "a=b"}}} {
		if errs := s.Validate(object, false); len(errs) > 0 {
			t.Errorf("%v: %v", object, errs)
		}
	}
}
