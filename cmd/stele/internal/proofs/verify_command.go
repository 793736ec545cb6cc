package proofs

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"stele.dev/stele/cmd/stele/internal/show"
	"stele.dev/stele/cmd/stele/internal/usage"
	"stele.dev/stele/core/keep/encryption"
	"stele.dev/stele/core/keep/retention"
	controlplane "stele.dev/stele/core/run/plane"
	"stele.dev/stele/core/run/plane/datadir"
	"stele.dev/stele/eventlog"
	"stele.dev/stele/eventlog/archive"
	"stele.dev/stele/eventlog/proof"
	"stele.dev/stele/eventlog/verify"
)

// DatabaseCheck looks for damage in a file of etcd's database.
type DatabaseCheck func(ctx context.Context, file string) error

// verifyOptions are the flags of verify.
type verifyOptions struct {
	encryption string
	serverFlags
	keyFlags
	show.FormatFlags
	dataDir string
	heads   []string
	quick   bool
	// decisions is the folder of a log of decisions, which is verified alone.
	decisions string
	check     DatabaseCheck
}

func verifyCommand(check DatabaseCheck) *cobra.Command {
	o := &verifyOptions{check: check}
	cmd := &cobra.Command{
		Use:   "verify",
		Short: "Read the whole log, and name the first thing that is wrong in it",
		Long: `Verify reads every batch of the log of a server, or with --data-dir that in the data directory of a
stopped server. It checks the hashes of all events, that each batch continues the one before, that no
revision is missing but those that the log declares lost or forgotten, the checksums of segments and
checkpoints, that checkpoints hold what the log makes of the objects, and that the log ends where its
store says. The first difference is named with its file and revision, and the exit code is 1.

With --data-dir it also verifies the log of decisions of that server, and compares it with the heads of
it that the log has. --decisions verifies the folder of a log of decisions alone.

To read a server's log you need permission to get the nonResourceURLs /log/*, with the contents of all
objects. Segments are downloaded one after the other.

With --head it also compares the log with tree heads that you have kept. Only that finds a log that was
replaced by another one as a whole.

The exit code is 3 if nothing is wrong but something cannot be compared: a head, because retention has
forgotten the batches around its end; batches before others that a former version has forgotten without
a record; or a checkpoint that the log neither makes again nor has recorded.

For backups there is ` + "`stele backup verify`" + `, for what serves there is ` + "`stele projection verify`" + `.`,
		Example: `  stele proof verify
  stele proof verify --data-dir ./stele-data
  stele proof verify --data-dir ./stele-data --head head.txt --key log.key.pub`,
		Args: usage.NoArguments,
		RunE: func(cmd *cobra.Command, _ []string) error { return o.run(cmd) },
	}
	f := cmd.Flags()
	f.StringVar(&o.dataDir, "data-dir", "", "data directory of a stopped server (default: ask the server of the kubeconfig)")
	f.StringArrayVar(&o.heads, "head", nil, "file of a tree head that the log must agree with; may be repeated")
	f.StringVar(&o.decisions, "decisions", "", "folder of a log of decisions, to verify only that; a server may use it")
	f.StringVar(&o.encryption, "encryption-provider-config", "", "`FILE` with the keys under which the server encrypts what it stores, to compare checkpoints, too; the log itself is verified without keys")
	f.BoolVar(&o.quick, "quick", false, "do not fold the log to compare checkpoints with it, which takes the memory of all objects")
	_ = cmd.MarkFlagDirname("data-dir")
	_ = cmd.MarkFlagFilename("head")
	o.serverFlags.addFlags(cmd)
	o.keyFlags.addFlags(cmd)
	o.FormatFlags.AddFlags(cmd, "json", "yaml")
	return cmd
}

func (o *verifyOptions) run(cmd *cobra.Command) error {
	ctx, stop := usage.Interruptible(cmd)
	defer stop()
	if o.decisions != "" {
		return o.runDecisions(ctx, cmd)
	}
	var heads []proof.TreeHead
	for _, file := range o.heads {
		head, err := o.readHead(file)
		if err != nil {
			return err
		}
		heads = append(heads, head.head)
	}
	look := o.server
	if o.dataDir != "" {
		look = o.directory
	}
	found, err := look(ctx, heads, newProgress(cmd.ErrOrStderr()))
	if err != nil {
		return incomparable(err)
	}
	if o.Format != "" {
		err = o.Document(cmd, found)
	} else {
		_, err = fmt.Fprint(cmd.OutOrStdout(), found.text())
	}
	if err == nil && found.NotCompared != "" && !o.quick {
		err = usage.Exit(usage.ExitIncomparable, errors.New("a checkpoint cannot be compared with the log"))
	}
	return err
}

// server verifies the log of the server of the flags.
func (o *verifyOptions) server(ctx context.Context, heads []proof.TreeHead, p *progress) (*verified, error) {
	defer p.end()
	config, _, err := o.Config()
	if err != nil {
		return nil, err
	}
	folder, err := os.MkdirTemp("", "stele-verify-")
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(folder)
	source, err := serverSource(ctx, config, folder)
	if err != nil {
		return nil, err
	}
	result, err := verify.Log(ctx, source, verify.Options{Heads: heads, Progress: p.show})
	if err != nil {
		return nil, err
	}
	return newVerified(result, len(heads)), nil
}

// directory verifies the log in the data directory.
func (o *verifyOptions) directory(ctx context.Context, heads []proof.TreeHead, p *progress) (*verified, error) {
	defer p.end()
	if _, err := os.Stat(filepath.Join(o.dataDir, "etcd", "member")); errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("%s has no log: it is not the data directory of a server", o.dataDir)
	} else if err != nil {
		return nil, err
	}
	dir, err := datadir.Open(o.dataDir, datadir.Options{CheckDatabase: o.check})
	if err != nil {
		return nil, err
	}
	defer dir.Close()
	log, err := dir.OpenLog(ctx)
	if err != nil {
		return nil, err
	}
	keys, err := encryption.OpenIn(dir.Path("pki"), o.encryption)
	if err != nil {
		return nil, err
	}
	defer keys.Close()
	log.SetKeys(eventlog.LeaveSealed)
	if err := log.LearnLevel(ctx); err != nil {
		return nil, err
	}
	var older *archive.Archive
	source := verify.Source{ID: log.ID(), Name: dir.Path("etcd"), Batches: verify.BatchesOf(log), Confirm: verify.ConfirmBy(log)}
	segments := dir.Path("segments")
	if exists(segments) {
		if older, err = archive.Open(archive.Options{Dir: segments, Log: log.ID()}); err != nil {
			return nil, err
		}
		source.Segments = verify.SegmentsOf(older)
	}
	result, err := verify.Log(ctx, source, verify.Options{Heads: heads, Progress: p.show})
	if err != nil {
		return nil, err
	}
	if older != nil {
		log.SetArchive(older) // not before, so that the store itself was read
	}
	v := newVerified(result, len(heads))
	if path := dir.Path("checkpoints"); exists(path) {
		c := &checkpoints{log: log, tip: result.Head.Revision, quick: o.quick, keys: keys.OfLog()}
		if older != nil {
			floors, err := retention.ReadFloors(dir.Path(retention.Folder), older.Segments())
			if err != nil {
				return nil, err
			}
			c.erased = floors.ByKind()
		}
		if err := c.verify(ctx, path, v); err != nil {
			return nil, err
		}
	}
	if path := dir.Path(controlplane.DecisionsFolder); exists(path) {
		if v.Decisions, err = verifyDecisions(ctx, path, log); err != nil {
			return nil, err
		}
	}
	return v, nil
}

func exists(path string) bool {
	_, err := os.Lstat(path)
	return err == nil
}

// verified is what has been verified, as a document.
type verified struct {
	Head        *headFinding    `json:"head"`
	Batches     uint64          `json:"batches"`
	Events      uint64          `json:"events"`
	Forgotten   uint64          `json:"forgottenBatches,omitempty"`
	Lost        []lostRevisions `json:"lostRevisions,omitempty"`
	Segments    int             `json:"segments"`
	Checkpoints int             `json:"checkpoints"`
	// Compared is how many checkpoints are what the log makes of the objects, and NotCompared says why others were not
	// compared.
	Compared    int    `json:"comparedCheckpoints"`
	NotCompared string `json:"notCompared,omitempty"`
	Heads       int    `json:"heads"` // tree heads that agree
	// Decisions is the log of decisions; nil if there is none.
	Decisions *verifiedDecisions `json:"decisions,omitempty"`
}

// newVerified returns the document of a result, which agrees with a number of heads.
func newVerified(result *verify.Result, heads int) *verified {
	v := &verified{Head: headOf(result.Head), Batches: result.Batches, Events: result.Events, Forgotten: result.Forgotten, Segments: result.Segments, Heads: heads}
	for _, e := range result.Epochs {
		v.Lost = append(v.Lost, lostRevisions{e.LostFrom, e.Next - 1})
	}
	return v
}

// lostRevisions are revisions that an epoch has declared lost.
type lostRevisions struct {
	From uint64 `json:"from"`
	To   uint64 `json:"to"`
}

// text returns the document as text.
func (v *verified) text() string {
	var b strings.Builder
	line := func(name, format string, args ...any) {
		fmt.Fprintf(&b, "%-12s%s\n", name, fmt.Sprintf(format, args...))
	}
	line("Valid", "every batch, up to revision %d", v.Head.Revision)
	line("Log", "%s", v.Head.Log)
	line("Head", "%s", v.Head.text())
	line("Batches", "%d with %d events, and %d segments", v.Batches, v.Events, v.Segments)
	if v.Forgotten > 0 {
		line("Forgotten", "%d batches, of which the hashes are left", v.Forgotten)
	}
	for _, l := range v.Lost {
		line("Lost", "revisions %d to %d, as the log declares", l.From, l.To)
	}
	if v.Checkpoints > 0 {
		line("Checkpoints", "%d, of which %d hold what the log makes of the objects", v.Checkpoints, v.Compared)
		if v.NotCompared != "" {
			line("", "not compared: %s", v.NotCompared)
		}
	}
	if v.Heads > 0 {
		line("Tree heads", "%d agree", v.Heads)
	}
	if d := v.Decisions; d != nil {
		line("Decisions", "%s", d.text())
	}
	return b.String()
}

// progress shows on a terminal how far a command has come.
type progress struct {
	out  io.Writer // nil if it is no terminal
	last time.Time
}

func newProgress(out io.Writer) *progress { return &progress{out: show.OnTerminal(out)} }

func (p *progress) show(revision uint64) {
	if p.out == nil || time.Since(p.last) < 100*time.Millisecond {
		return
	}
	p.last = time.Now()
	fmt.Fprintf(p.out, "\rverified up to revision %d", revision)
}

// end removes the line.
func (p *progress) end() {
	if p.out != nil && !p.last.IsZero() {
		fmt.Fprint(p.out, "\r\x1b[K")
	}
}
