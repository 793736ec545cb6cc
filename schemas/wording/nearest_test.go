package wording_test

import (
	"testing"

	"stele.dev/stele/schemas/wording"
)

func TestALongTextIsCutAtACharacter(t *testing.T) {
	for _, c := range []struct {
		text string
		most int
		want string
	}{{"abc", 3, "abc"}, {"abcd", 3, "abc…"}, {"日本語", 3, "日本語"}, {"日本語", 2, "日本…"}, {"", 0, ""}, {"a", 0, "…"}} {
		if got := wording.Cut(c.text, c.most); got != c.want {
			t.Errorf("Cut(%q, %d) is %q, want %q", c.text, c.most, got, c.want)
		}
	}
}

func TestAPlaceFollowsInParenthesesIfThereIsOne(t *testing.T) {
	for place, want := range map[string]string{"a.cue:7": " (a.cue:7)", "": ""} {
		if got := wording.At(place); got != want {
			t.Errorf("At(%q) is %q, want %q", place, got, want)
		}
	}
}
