package main

import (
	"fmt"
	"slices"
	"strings"
	"testing"
)

const listed = `
# comment
race  ./core/...  .         goroutines
plain ./.../wire .          none
plain ./core      ^TestSearch takes too long with it
waits ./cmd       ^TestKill processes
`

func somePackages() []goPackage {
	packages := []goPackage{
		{ImportPath: "m/core", tests: []string{"TestLock", "TestSearch"}, Imports: []string{"m/core/wire"}},
		{ImportPath: "m/core/wire", tests: []string{"TestParse"}},
		{ImportPath: "m/core/read", tests: []string{"TestRead"}, XTestImports: []string{"m/core"}},
		{ImportPath: "m/cmd", tests: []string{"TestKill", "TestHelp"}, Imports: []string{"m/core"}},
	}
	for i := range packages {
		packages[i].Module.Path = "m"
	}
	return packages
}

func rules(t *testing.T) []rule {
	t.Helper()
	rules, err := parseRules(listed)
	if err != nil {
		t.Fatal(err)
	}
	return rules
}

func TestEachTestIsInOneRun(t *testing.T) {
	runs, err := planRuns(somePackages(), rules(t))
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, r := range runs {
		got = append(got, strings.Join(r.arguments()[2:], " "))
	}
	want := []string{"m/core/wire m/cmd", "-race -skip=^(TestSearch)$ m/core m/core/read", "-run=^(TestSearch)$ m/core"}
	if !slices.Equal(got, want) {
		t.Errorf("%q\nwant %q", got, want)
	}
}

func TestRulesThatCannotHold(t *testing.T) {
	for text, want := range map[string]string{
		"race ./core .":                  "line 1",
		"often ./core . because":         "line 1",
		"race ./core ( because":          "line 1",
		"race ./core TestGone because":   "no such test",
		"race ./other . because":         "no such test",
		listed + "race ./core/w . is no": "no such test",
		"race ./core,./gone . because":   "no such test",
	} {
		rules, err := parseRules(text)
		if err == nil {
			err = checkRules(somePackages(), rules)
		}
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v, want %s", text, err, want)
		}
	}
	packages := somePackages()
	packages[2].tests = append(packages[2].tests, "TestSearch")
	if _, err := planRuns(packages, rules(t)); err == nil {
		t.Error("two tests of one name run in two ways: no error")
	}
}

func TestTestsAreFoundInTheirSource(t *testing.T) {
	names, err := testsOf([]byte(`package p
func TestMain(m *testing.M) {}
func TestA(t *testing.T) {}
func Test(t *testing.T) {}
func Testing() {}
func FuzzB(f *testing.F) {}
func (s suite) TestC() {}
func BenchmarkD(b *testing.B) {}
func ExampleF() {
	// Output: f
}
func ExampleG() {}
`))
	if err != nil || !slices.Equal(names, []string{"TestA", "Test", "FuzzB", "ExampleF"}) {
		t.Error(names, err)
	}
}

// events returns lines of `go test -json`: those of cmd with two tests, of which one fails with a subtest.
func events(killOutput string) string {
	line := func(action, test, more string) string {
		return fmt.Sprintf(`{"Action":%q,"Package":"m/cmd","Test":%q%s}`+"\n", action, test, more)
	}
	return line("run", "TestHelp", "") + line("output", "TestHelp", `,"Output":"only seen if it fails\n"`) + line("pass", "TestHelp", `,"Elapsed":2`) +
		line("run", "TestKill", "") + line("run", "TestKill/twice", "") +
		line("output", "TestKill/twice", fmt.Sprintf(`,"Output":%q`, killOutput+"\n")) +
		line("fail", "TestKill/twice", "") + line("fail", "TestKill", `,"Elapsed":30`) +
		`{"Action":"output","Package":"m/cmd","Output":"FAIL\tm/cmd\t32s\n"}` + "\n" + `{"Action":"fail","Package":"m/cmd","Elapsed":32}`
}

// judged returns what the gate prints and complains of, when cmd had some events, and a repeated test passes or does not.
func judged(t *testing.T, text string, passes bool) (out, problems string, repeated []string) {
	t.Helper()
	var printed strings.Builder
	r := newResults(&printed)
	if err := r.read(strings.NewReader(text)); err != nil {
		t.Fatal(err)
	}
	found := r.judge(somePackages()[3:], rules(t), func(of test, subtest string) (bool, string) {
		repeated = append(repeated, of.name+"/"+subtest)
		return passes, "again"
	})
	r.report(&printed, 1)
	return printed.String(), fmt.Sprint(found), repeated
}

func TestAFailureOfATestThatWaitsIsRepeatedAlone(t *testing.T) {
	out, problems, repeated := judged(t, events("too late"), true)
	if problems != "[]" || !slices.Equal(repeated, []string{"TestKill/twice"}) || strings.Count(out, "too late") != 2 || strings.Contains(out, "only seen") {
		t.Error(problems, repeated, out)
	}
	for _, want := range []string{"FAIL\tm/cmd\t32s\n", "FLAKY m/cmd TestKill failed", "    30.0s m/cmd TestKill\n", "2 tests of 1 packages ran"} {
		if !strings.Contains(out, want) {
			t.Errorf("no %q in\n%s", want, out)
		}
	}
	if out, problems, _ := judged(t, events("too late"), false); problems != "[m/cmd TestKill failed m/cmd failed]" || strings.Contains(out, "FLAKY") {
		t.Error(problems, out)
	}
}

func TestOtherFailuresAreFailures(t *testing.T) {
	for what, text := range map[string]string{
		"a data race":           events("WARNING: DATA RACE"),
		"a test that never ran": strings.ReplaceAll(events("too late"), "TestHelp", "TestOther"),
		"another test":          strings.ReplaceAll(events("too late"), "TestKill", "TestHelp"),
		"a process that ended":  strings.ReplaceAll(events("too late"), `{"Action":"fail","Package":"m/cmd","Test":"TestKill"`, `{"Action":"output","Package":"m/cmd"`),
		"no test":               `{"Action":"fail","Package":"m/cmd","Elapsed":32}`,
	} {
		if _, problems, _ := judged(t, text, true); problems == "[]" {
			t.Errorf("%s: no problem", what)
		}
	}
}

func TestWhatChangedAndWhatImportsIt(t *testing.T) {
	changed := changedPackages(somePackages(), []string{"core/wire/testdata/deep/x.txt", "README.md", "core/wire/wire.go"})
	if got := importers(somePackages(), changed); !slices.Equal(changed, []string{"m/core/wire"}) || !slices.Equal(got, []string{"m/core"}) {
		t.Error(changed, got)
	}
}

func TestChangedTestsOfAFile(t *testing.T) {
	const before = "package p\n\nimport \"testing\"\n\nfunc TestA(t *testing.T) {}\n\nfunc TestB(t *testing.T) { help() }\n\nfunc help() {}\n"
	for _, c := range []struct{ from, to, want string }{
		{"TestA(t *testing.T) {}", "TestA(t *testing.T) { t.Log() }", "[TestA]"},
		{"func TestA", "func TestC(t *testing.T) {}\n\nfunc TestA", "[TestC]"},
		{"func help() {}", "func help() { panic(1) }", "[TestA TestB]"},
		{"\"testing\"", "\"testing\"\nimport \"os\"", "[]"},
	} {
		if got := fmt.Sprint(changedIn([]byte(before), []byte(strings.Replace(before, c.from, c.to, 1)))); got != c.want {
			t.Errorf("%q: %s, want %s", c.to, got, c.want)
		}
	}
	if got := fmt.Sprint(changedIn(nil, []byte(before))); got != "[TestA TestB]" {
		t.Error("a new file:", got)
	}
}
