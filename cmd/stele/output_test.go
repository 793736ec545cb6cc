package main

import (
	"bytes"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"stele.dev/stele/core/explain"
)

func TestColumnsAreAlignedAndNeverBecomeNarrower(t *testing.T) {
	var b bytes.Buffer
	c := &columns{out: &output{Writer: &b}}
	c.header("REVISION", "ACTOR", "CHANGE")
	c.add("", cell{text: "7", right: true}, cell{text: "jürgen"}, cell{text: "created"})
	c.add("    + spec.size: 3\n", cell{text: "12", right: true}, cell{text: "bo"}, cell{text: "deleted"})
	require.NoError(t, c.flush())
	c.add("", cell{text: "1", right: true}, cell{text: "a"}, cell{text: "b"})
	c.add("", cell{text: "1", right: true}, cell{text: "a"}, cell{})
	require.NoError(t, c.flush())
	assert.Equal(t, `REVISION  ACTOR   CHANGE
       7  jürgen  created
      12  bo      deleted
    + spec.size: 3
       1  a       b
       1  a
`, b.String())
}

// A user's name is what some issuer says.
func TestANameDoesNothingToTheTerminal(t *testing.T) {
	const name = "eve\x1b[2J\n 7  bob  \u202edeleted\u009b1m"
	var b bytes.Buffer
	c := &columns{out: &output{Writer: &b}}
	c.add("", cell{text: "1"}, cell{text: name}, cell{text: "created"})
	require.NoError(t, c.flush())
	assert.Equal(t, "1  eve\ufffd[2J\ufffd 7  bob  \ufffddeleted\ufffd1m  created\n", b.String())

	b.Reset()
	e := &explain.Explanation{Spec: explain.Spec{User: name, Verb: "get", Path: "/"}, Status: explain.Status{Message: "User \"" + name + "\" cannot",
		Stages: []explain.Stage{{Name: "authorization", Verdict: explain.Refused, Rule: name, Considered: []explain.Considered{{Verdict: "no", Rule: name, Reason: name}}}}}}
	require.NoError(t, printExplanation(&b, e))
	assert.False(t, strings.ContainsAny(b.String(), "\x1b\u202e\u009b"), b.String())
	assert.True(t, strings.HasPrefix(b.String(), "Whether eve\ufffd[2J\ufffd 7  bob"), b.String())
}

func TestColoursDoNotMoveColumns(t *testing.T) {
	var b bytes.Buffer
	c := &columns{out: &output{Writer: &b, colored: true}}
	c.add("", cell{text: "a", style: added}, cell{text: "b"})
	c.add("", cell{text: "long"}, cell{text: "b", style: removed})
	require.NoError(t, c.flush())
	assert.Equal(t, "\x1b[32ma\x1b[0m     b\nlong  \x1b[31mb\x1b[0m\n", b.String())
}

func TestTimesHaveTheirOffset(t *testing.T) {
	at := time.Date(2026, 11, 20, 14, 0, 0, 0, time.FixedZone("", 60*60))
	assert.Equal(t, "2026-11-20 13:00:00Z", (&output{utc: true}).time(at))
	again, err := parseMoment((&output{}).time(at), at.Add(time.Hour))
	require.NoError(t, err)
	assert.True(t, at.Equal(again.at))
}

func TestThePagerIsWhatTheEnvironmentSays(t *testing.T) {
	t.Setenv("PATH", t.TempDir()) // no less here
	for _, c := range []struct {
		name string
		env  map[string]string
		want string
	}{
		{"stele's own before others'", map[string]string{"STELE_PAGER": "more -s", "PAGER": "most"}, "more -s"},
		{"others' if there is none", map[string]string{"PAGER": "most"}, "most"},
		{"none if stele's own is empty", map[string]string{"STELE_PAGER": "", "PAGER": "most"}, ""},
		{"none if it is cat", map[string]string{"PAGER": "cat"}, ""},
		{"none if there is none", nil, ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			assert.Equal(t, c.want, pagerCommand(func(name string) (string, bool) { value, ok := c.env[name]; return value, ok }))
		})
	}
}

func TestAPagerGetsAllAndIsWaitedFor(t *testing.T) {
	var b bytes.Buffer
	p, err := startPager("tr a-z A-Z", &b, &b)
	require.NoError(t, err)
	_, err = p.Write([]byte("what was\n"))
	require.NoError(t, err)
	require.NoError(t, p.Close())
	assert.Equal(t, "WHAT WAS\n", b.String())
}
