package simulation_test

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"go/parser"
	gotoken "go/token"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"
)

var (
	plantedBugs = flag.String("planted-bugs", "", "a regular expression: build the program with each bug of a matching name, and search for seeds that find it")
	plantedMost = flag.Int("planted-bugs-seeds", 400, "how many seeds to search for a planted bug")
)

// plantedBug is a bug that the simulation must find. All of them are planted by one overlay of source files (go help
// build), so that the program has no switch for them: the overlay has, see [plantedSwitch].
type plantedBug struct {
	name  string
	edits []edit
}

// edit replaces a text of a file, relative to the module, that is in it exactly once. BUG in the new text is whether
// the bug is switched on.
type edit struct{ file, old, new string }

const (
	roundFile   = "core/commit/round.go"
	commitFile  = "core/commit/commit.go"
	confirmFile = "core/commit/confirm.go"
	tipFile     = "core/commit/tip.go"
	logFile     = "eventlog/log.go"
	tiersFile   = "eventlog/tiers.go"
	storeFile   = "projections/objects/store.go"
	watchFile   = "projections/objects/watch.go"
)

var allPlantedBugs = []plantedBug{
	{"an append does not compare the head", []edit{{"eventlog/memlog/memlog.go",
		`if !bytes.Equal(s.head, p.From) || `,
		`if BUG && i < len(s.batches) && s.batches[i].First == p.At {
		s.batches = slices.Clone(s.batches)
		s.batches[i].Value, s.head = p.Value, p.To
		return eventlog.Answer{Applied: true}, s.news(&s.batches[i])
	}
	if !bytes.Equal(s.head, p.From) || `}}},
	{"a proposal that lost is not checked again", []edit{{roundFile,
		`default: // the decisions were made on an old state`,
		`default:
		for _, p := range accepted {
			if BUG {
				p.Checks = Checks{PolicyRevision: p.Checks.PolicyRevision}
			}
		}`}}},
	{"a confirmation is from before the call", []edit{{confirmFile,
		`c.answer(asking)`,
		`if BUG {
			c.mu.Lock()
			late := c.askers
			c.askers = askers{}
			c.mu.Unlock()
			c.answer(late)
		}
		c.answer(asking)`}}},
	{"a confirmation does not wait for what is newer", []edit{{confirmFile,
		`if tip.Revision() >= revision {`,
		`if tip.Revision() >= revision || BUG {`}}},
	{"a request is refused on an old tip", []edit{{"core/pipeline.go",
		`r.Confirmed || r.Stage == "answer" || r.Sent {`,
		`r.Confirmed || r.Stage == "answer" || r.Sent || BUG {`}}},
	{"a write that changes nothing is answered on an old tip", []edit{{"core/commit.go",
		`if err := r.Confirm(ctx, p.committer); err != nil {`,
		`if err := r.Confirm(ctx, p.committer); err != nil && !BUG {`}}},
	{"a write that was sent is reported as not sent", []edit{{commitFile,
		`if w.state.CompareAndSwap(sent, abandoned) {`,
		`if w.state.CompareAndSwap(sent, abandoned) {
		if BUG {
			return nil, 0, fmt.Errorf("%w: %w", ErrNotSent, context.Cause(ctx))
		}`}}},
	{"a batch that was appended at the first try is not recognized", []edit{{logFile,
		`if newer[0].Nonce == batch.Nonce {`,
		`if newer[0].Nonce == batch.Nonce && !BUG {`}}},
	{"an unknown outcome is taken for a refusal", []edit{{logFile,
		`if err == nil || first && Refused(err) {`,
		`if err == nil || (first || BUG) && Refused(err) {`}}},
	{"the policy is not checked", []edit{{tipFile,
		`in != c.PolicyRevision {`,
		`in != c.PolicyRevision && !BUG {`}}},
	{"the revision of the object is not checked", []edit{
		{tipFile, `if revision != a.Revision {`,
			`if revision != a.Revision && !(BUG && revision > 0 && a.Revision > 0) {`},
		{"projections/objects/apply.go", `case o.Revision != revision:`,
			`case o.Revision != revision && !(BUG && revision > 0):`}}},
	{"what rules have read of a selection is not checked", []edit{{"core/commit/selections.go",
		`why != "" {`,
		`why != "" && !BUG {`}}},
	{"an object that rules have looked up is not checked", []edit{{tipFile,
		`if stale := c.Objects[i].check(o); stale != nil {`,
		`if stale := c.Objects[i].check(o); stale != nil && !BUG {`}}},
	{"the namespace is not checked", []edit{{tipFile,
		`if exists, active := NamespaceState(o, ns); !exists || !active {`,
		`if exists, active := NamespaceState(o, ns); (!exists || !active) && !BUG {`}}},
	{"quotas are not checked", []edit{{roundFile,
		`if exceeded := s.checkQuota(p.Proposal); exceeded != nil {`,
		`if exceeded := s.checkQuota(p.Proposal); exceeded != nil && !BUG {`}}},
	{"quotas are checked on the state before the batch", []edit{{roundFile,
		`exceeded, s.measured = s.quotas.Fits(`,
		`usage := s.quotas
	if BUG {
		usage = s.Tip().Quotas
	}
	exceeded, s.measured = usage.Fits(`}}},
	{"a namespace is removed with what is in it", []edit{
		{tipFile, `if r, found := o.FirstIn(ns); found {`, `if r, found := o.FirstIn(ns); found && !BUG {`},
		{"core/write/edit/namespaces.go", `_, found := d.Tip.Objects.FirstIn(d.Key.Name)
	return found`, `_, found := d.Tip.Objects.FirstIn(d.Key.Name)
	return found && !BUG`}}},
	{"the UID of what is deleted is not checked", []edit{{"core/write/edit/decode.go",
		`if pre.UID != nil && string(*pre.UID) != d.Old.UID {`,
		`if pre.UID != nil && string(*pre.UID) != d.Old.UID && !BUG {`}}},
	{"a watch skips a change when it catches up", []edit{{watchFile,
		`w.seen, w.lagging, w.part = max(w.seen, w.store.revision), false, 0`,
		`w.seen, w.lagging, w.part = max(w.seen, w.store.revision), false, 0
		if BUG && len(changes) > 0 {
			changes = changes[1:]
		}`}}},
	{"a watch repeats a change that it has caught up with", []edit{{watchFile,
		`if w.lagging || c.Revision <= w.seen {`,
		`if w.lagging || c.Revision <= w.seen && !BUG {`}}},
	{"a bookmark is ahead", []edit{{watchFile,
		`bookmark = w.seen
	w.mu.Unlock()`,
		`bookmark = w.seen
	if BUG {
		bookmark = max(bookmark, w.store.State().Revision)
	}
	w.mu.Unlock()`}}},
	{"a list of a past revision lacks what was deleted since", []edit{{storeFile,
		`t.Set(c.Before)`,
		`if !BUG || !c.Deleted {
					t.Set(c.Before)
				}`}}},
	{"more is trimmed than the archive has", []edit{{tiersFile,
		`return l.backend.Trim(ctx, upto)`,
		`if BUG {
		upto += 20
	}
	return l.backend.Trim(ctx, upto)`}}},
	{"a trim does not look into the archive", []edit{{tiersFile,
		`if upto > tip.Revision {`,
		`if upto > tip.Revision && !BUG {`}}},
	{"a checkpoint lacks an object", []edit{{"projections/objects/export.go",
		`record = o.append(record[:0], kinds.kindOf(s, o))`,
		`if BUG && o.Name == "c" {
				return true
			}
			record = o.append(record[:0], kinds.kindOf(s, o))`}}},
	{"an epoch is ignored", []edit{{roundFile,
		`if after.EpochStart = before.EpochStart; b.Epoch != before.Head.Epoch {`,
		`if after.EpochStart = before.EpochStart; b.Epoch != before.Head.Epoch && !BUG {`}}},
	{"a replica keeps its own policy", []edit{{roundFile,
		`if active, ahead, err = s.ready(next.Active.Proposal); err != nil {`,
		`if BUG && s.policy != nil {
			active = s.policy
		} else if active, ahead, err = s.ready(next.Active.Proposal); err != nil {`}}},
}

// plantedSwitch is a package that only the overlay has.
const plantedSwitch = `package planted

import "os"

var name = os.Getenv("PLANTED_BUG")

// Is reports whether a bug is switched on.
func Is(bug string) bool { return bug == name }
`

// module is the folder of the module, from this package.
const module = "../../.."

// plant writes all files with bugs to a folder, and returns the file of the overlay.
func plant(dir string, bugs []plantedBug) (string, error) {
	root, err := filepath.Abs(module)
	if err != nil {
		return "", err
	}
	texts := map[string]string{}
	for _, b := range bugs {
		for _, e := range b.edits {
			text := texts[e.file]
			if text == "" {
				original, err := os.ReadFile(filepath.Join(root, e.file))
				if err != nil {
					return "", err
				}
				if text, err = importSwitch(string(original)); err != nil {
					return "", fmt.Errorf("%s: %w", e.file, err)
				}
			}
			if n := strings.Count(text, e.old); n != 1 {
				return "", fmt.Errorf("%q: the text %q is %d times in %s, not once: change how the bug is planted", b.name, e.old, n, e.file)
			}
			texts[e.file] = strings.Replace(text, e.old, strings.ReplaceAll(e.new, "BUG", fmt.Sprintf("planted.Is(%q)", b.name)), 1)
		}
	}
	texts["planted/planted.go"] = plantedSwitch
	replaced := map[string]string{}
	for file, text := range texts {
		if _, err := parser.ParseFile(gotoken.NewFileSet(), file, text, parser.SkipObjectResolution); err != nil {
			return "", err
		}
		to := filepath.Join(dir, strings.ReplaceAll(file, "/", "_"))
		if err := os.WriteFile(to, []byte(text), 0o600); err != nil {
			return "", err
		}
		replaced[filepath.Join(root, file)] = to
	}
	overlay, err := json.Marshal(map[string]any{"Replace": replaced})
	if err != nil {
		return "", err
	}
	file := filepath.Join(dir, "overlay.json")
	return file, os.WriteFile(file, overlay, 0o600)
}

var packageClause = regexp.MustCompile(`(?m)^package \w+$`)

// importSwitch adds an import of the switch to a source file.
func importSwitch(text string) (string, error) {
	at := packageClause.FindStringIndex(text)
	if at == nil {
		return "", errors.New("it has no package clause")
	}
	return text[:at[1]] + "\n\nimport \"stele.dev/stele/planted\"" + text[at[1]:], nil
}

// TestPlantedBugs plants all bugs in the present source. With -planted-bugs, it also runs the simulation with each of
// them, and fails if the simulation does not find it.
func TestPlantedBugs(t *testing.T) {
	dir := t.TempDir()
	overlay, err := plant(dir, allPlantedBugs)
	if err != nil {
		t.Fatal(err)
	}
	if *plantedBugs == "" {
		return
	}
	program := filepath.Join(dir, "core.test")
	if out, err := exec.Command("go", "test", "-vet=off", "-overlay", overlay, "-c", "-o", program, ".").CombinedOutput(); err != nil {
		t.Fatalf("the bugs cannot be built: %v\n%s", err, out)
	}
	selected := regexp.MustCompile(*plantedBugs)
	for _, bug := range allPlantedBugs {
		if !selected.MatchString(bug.name) {
			continue
		}
		start := time.Now()
		seed, finding := simulateIn(t.Context(), program, []string{"PLANTED_BUG=" + bug.name}, fmt.Sprintf("-simulation-seeds=%d", *plantedMost))
		took := time.Since(start).Round(100 * time.Millisecond)
		if finding == "" {
			t.Errorf("%-62s not found by %d seeds in %v", bug.name, *plantedMost, took)
			continue
		}
		fmt.Printf("%-62s found at seed %3s after %6v: %.140s\n", bug.name, seed, took, finding)
	}
}

var (
	seedRun = regexp.MustCompile(`(?m)^=== RUN +TestSimulation/(\d+)`)
	failure = regexp.MustCompile(`(?m)^ +\w+_test\.go:\d+: (.*)|^(panic: .*|fatal error: .*)`)
)

// simulateIn runs the simulation in another program until a seed fails. It returns that seed and its first failure.
func simulateIn(ctx context.Context, program string, env []string, flags ...string) (seed, finding string) {
	ctx, cancel := context.WithTimeout(ctx, 5*time.Minute)
	defer cancel()
	c := exec.CommandContext(ctx, program, append([]string{"-test.run=^TestSimulation$", "-test.v", "-test.failfast"}, flags...)...)
	c.Env = append(os.Environ(), env...)
	out, err := c.CombinedOutput()
	if exit := (*exec.ExitError)(nil); err == nil || !errors.As(err, &exit) {
		return "", ""
	}
	if runs := seedRun.FindAllSubmatch(out, -1); len(runs) > 0 {
		seed = string(runs[len(runs)-1][1])
	}
	if f := failure.FindSubmatch(out); f != nil {
		return seed, string(f[1]) + string(f[2])
	}
	return seed, err.Error()
}
