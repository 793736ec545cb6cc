package formatting_test

import (
	"slices"
	"testing"

	"stele.dev/stele/policy/formatting"
)

func TestOutlineHasThePackageAndTheFields(t *testing.T) {
	pkg, fields, err := formatting.Outline("a.cue", []byte("package web\n\nimport \"list\"\n\n#A: 1\nteam: kinds: x: 1\n\"a b\": list.Max([1])\n"))
	if err != nil || pkg != "web" || !slices.Equal(fields, []string{"#A", "team", "a b"}) {
		t.Errorf("package %q with %q, %v", pkg, fields, err)
	}
	if _, _, err := formatting.Outline("a.cue", []byte("package {")); err == nil {
		t.Error("a file that is not CUE has an outline")
	}
}

func TestALabelHasQuotesIfItNeedsThem(t *testing.T) {
	for name, want := range map[string]string{"storage": "storage", "my-data": `"my-data"`} {
		if got := formatting.Label(name); got != want {
			t.Errorf("%q is the label %s", name, got)
		}
	}
}
