package proofs

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/spf13/cobra"
	"stele.dev/stele/cmd/stele/internal/show"
	"stele.dev/stele/cmd/stele/internal/usage"
	"stele.dev/stele/eventlog/logpb"
	"stele.dev/stele/eventlog/proof"
	"stele.dev/stele/schemas/wording"
)

// checkOptions are the flags of check.
type checkOptions struct {
	keyFlags
	show.FormatFlags
	head, from string
}

func checkCommand() *cobra.Command {
	o := &checkOptions{}
	cmd := &cobra.Command{
		Use:   "check FILE",
		Short: "Check a proof or a signed tree head, without a server",
		Long: `Check verifies a proof of ` + "`stele proof prove`" + `, or a head of ` + "`stele proof checkpoint --sign`" + `, and prints what it
proves. It needs no server and no kubeconfig.

Somebody must vouch for the head of a proof. Give --key, the public key that has signed the head in the
proof; or --head, your own copy of that head; or both. For a proof that the log goes on from an older
head, --from is your copy of the older one.

The exit code is 1 if the proof is wrong, and 2 if it could not be checked.`,
		Example: `  stele proof check proof.json --head head.txt --key log.key.pub
  stele proof check proof.json --from old.txt --head head.txt --key log.key.pub
  stele proof check head.txt --key log.key.pub`,
		Args: usage.Exactly("FILE"),
		RunE: func(cmd *cobra.Command, args []string) error { return o.run(cmd, args[0]) },
	}
	o.keyFlags.addFlags(cmd)
	o.FormatFlags.AddFlags(cmd, "json", "yaml")
	f := cmd.Flags()
	f.StringVar(&o.head, "head", "", "file of the tree head, as you have kept it")
	f.StringVar(&o.from, "from", "", "file of the older tree head, as you have kept it")
	for _, name := range []string{"head", "from"} {
		_ = cmd.MarkFlagFilename(name)
	}
	return cmd
}

func (o *checkOptions) run(cmd *cobra.Command, file string) error {
	document, err := os.ReadFile(file)
	if err != nil {
		return usage.Exit(usage.ExitUsage, err)
	}
	var found *finding
	switch format := proof.Format(document); {
	case format == proof.InclusionFormat:
		found, err = o.inclusion(document)
	case format == proof.ConsistencyFormat:
		found, err = o.consistency(document)
	case bytes.HasPrefix(bytes.TrimSpace(document), []byte("{")):
		err = usage.Errorf("its format %q is none that this version knows; use a newer one", format)
	default:
		found, err = o.signedHead(string(document))
	}
	if unreadable := new(fs.PathError); errors.As(err, &unreadable) {
		return usage.NoAnswer(err)
	}
	if err != nil {
		return fmt.Errorf("%s: %w", file, err)
	}
	if o.Format != "" {
		return o.Document(cmd, found)
	}
	_, err = fmt.Fprint(cmd.OutOrStdout(), found.text())
	return err
}

// signedHead checks a head.
func (o *checkOptions) signedHead(text string) (*finding, error) {
	if len(o.keys) == 0 {
		return nil, usage.Errorf("give --key, the public key that has signed this tree head")
	}
	head, err := o.openHead(text)
	if err != nil {
		return nil, err
	}
	return &finding{Proven: "TreeHead", Head: headOf(head)}, nil
}

// trusted returns the head of a proof, after it has been compared with the copy in a file, if there is one.
func (o *checkOptions) trusted(text, file, flag string) (proof.TreeHead, error) {
	if len(o.keys) == 0 && file == "" {
		return proof.TreeHead{}, usage.Errorf("nothing says that the proof's tree head is one of the log: give --key, the public key that has signed it, or %s, your copy of it", flag)
	}
	if file == "" {
		return o.openHead(text)
	}
	kept, err := o.readHead(file)
	if err != nil {
		return proof.TreeHead{}, err
	}
	if proof.Body(kept.text) != proof.Body(text) {
		return proof.TreeHead{}, fmt.Errorf("%w: it is for another tree head than that in %s", proof.ErrInvalid, file)
	}
	return kept.head, nil
}

func (o *checkOptions) inclusion(document []byte) (*finding, error) {
	if o.from != "" {
		return nil, usage.Errorf("--from is for proofs that a log goes on from a head; this one is about an event")
	}
	p, err := proof.DecodeInclusion(document)
	if err != nil {
		return nil, err
	}
	head, err := o.trusted(p.Head, o.head, "--head")
	if err != nil {
		return nil, err
	}
	proven, err := p.Verify(head)
	if err != nil {
		return nil, err
	}
	return &finding{Proven: "Event", Head: headOf(head), Event: eventOf(proven)}, nil
}

func (o *checkOptions) consistency(document []byte) (*finding, error) {
	p, err := proof.DecodeConsistency(document)
	if err != nil {
		return nil, err
	}
	from, err := o.trusted(p.From, o.from, "--from")
	if err != nil {
		return nil, err
	}
	to, err := o.trusted(p.To, o.head, "--head")
	if err != nil {
		return nil, err
	}
	if err := p.Verify(from, to); err != nil {
		return nil, err
	}
	return &finding{Proven: "Continuation", From: headOf(from), Head: headOf(to)}, nil
}

// finding is what a file proves, as a document.
type finding struct {
	Proven string        `json:"proven"` // TreeHead, Event or Continuation
	From   *headFinding  `json:"from,omitempty"`
	Head   *headFinding  `json:"head"`
	Event  *eventFinding `json:"event,omitempty"`
}

type headFinding struct {
	Log      string `json:"log"`
	Size     uint64 `json:"size"`
	Root     string `json:"root"`
	Revision uint64 `json:"revision,omitempty"`
}

type eventFinding struct {
	Revision     uint64           `json:"revision"`
	LastRevision uint64           `json:"lastRevision,omitempty"`
	Epoch        uint64           `json:"epoch,omitempty"`
	Time         time.Time        `json:"time"`
	Type         string           `json:"type"`
	Object       string           `json:"object,omitempty"`
	User         string           `json:"user,omitempty"`
	Impersonator string           `json:"impersonator,omitempty"`
	Verb         string           `json:"verb,omitempty"`
	AuditID      string           `json:"auditID,omitempty"`
	Rule         string           `json:"rule,omitempty"`
	Batch        string           `json:"batch"`
	Contents     []contentFinding `json:"contents,omitempty"`
}

type contentFinding struct {
	Role    string  `json:"role"`
	Size    uint64  `json:"size"`
	Content *string `json:"content,omitempty"` // only if it is in the proof, and text
	Data    []byte  `json:"data,omitempty"`    // only if it is in the proof, and not text
}

func headOf(h proof.TreeHead) *headFinding {
	return &headFinding{h.Log.String(), h.Size, h.Root.String(), h.Revision}
}

func eventOf(p *proof.Proven) *eventFinding {
	m := p.Meta
	e := &eventFinding{
		Revision: p.Revision, Epoch: p.Epoch, Time: p.Time, Batch: p.Batch.String(),
		Type: strings.ToLower(strings.TrimPrefix(m.GetType().String(), "TYPE_")),
		User: m.GetActor().GetUser(), Impersonator: m.GetActor().GetImpersonator().GetUser(),
		Verb: m.GetRequest().GetVerb(), AuditID: m.GetRequest().GetAuditId(), Rule: ruleText(m.GetDecisions()),
	}
	if p.Last > p.Revision {
		e.LastRevision = p.Last
	}
	if o := m.GetObject(); o != nil {
		e.Object = objectText(o)
	}
	for i, payload := range m.GetPayloads() {
		c := contentFinding{Role: strings.ToLower(strings.TrimPrefix(payload.GetRole().String(), "ROLE_")), Size: payload.GetSize()}
		if content := p.Contents[i]; utf8.Valid(content) && content != nil {
			text := string(content)
			c.Content = &text
		} else {
			c.Data = content
		}
		e.Contents = append(e.Contents, c)
	}
	return e
}

func ruleText(d *logpb.Decisions) string { return d.GetRule() + wording.At(d.GetSource()) }

func objectText(o *logpb.Object) string {
	text := o.GetResource()
	if o.GetGroup() != "" {
		text += "." + o.GetGroup()
	}
	if o.GetNamespace() != "" {
		text += " " + o.GetNamespace() + "/" + o.GetName()
	} else if o.GetName() != "" {
		text += " " + o.GetName()
	}
	return text
}

// text returns the finding as text.
func (f *finding) text() string {
	var b strings.Builder
	line := func(name, format string, args ...any) {
		if text := fmt.Sprintf(format, args...); text != "" {
			fmt.Fprintf(&b, "%-12s%s\n", name, show.Harmless(text))
		}
	}
	switch f.Proven {
	case "TreeHead":
		line("Valid", "the tree head is signed by a given key")
	case "Continuation":
		line("Valid", "the log of the newer head begins with the whole log of the older one")
		line("Older", "%s", f.From.text())
	case "Event":
		line("Valid", "the event is in the log of the head")
	}
	line("Log", "%s", f.Head.Log)
	line("Head", "%s", f.Head.text())
	if e := f.Event; e != nil {
		e.print(line)
	}
	return b.String()
}

func (h *headFinding) text() string {
	upTo := ""
	if h.Revision > 0 {
		upTo = fmt.Sprintf(", up to revision %d", h.Revision)
	}
	return fmt.Sprintf("%d batches%s, root %s", h.Size, upTo, h.Root)
}

// print prints the event line by line.
func (e *eventFinding) print(line func(name, format string, args ...any)) {
	last := ""
	if e.LastRevision > 0 {
		last = fmt.Sprintf(" to %d", e.LastRevision)
	}
	line("Revision", "%d%s", e.Revision, last)
	line("Time", "%s", e.Time.Format(time.RFC3339Nano))
	line("Event", "%s", strings.TrimSpace(e.Type+" "+e.Object))
	by := e.User
	if e.Impersonator != "" {
		by += ", impersonated by " + e.Impersonator
	}
	line("User", "%s", by)
	line("Request", "%s", strings.TrimSpace(e.Verb+" "+e.AuditID))
	line("Allowed by", "%s", e.Rule)
	for _, c := range e.Contents {
		state := "as a hash"
		if c.Content != nil {
			state = *c.Content
		} else if c.Data != nil {
			state = "not text; -o json shows it"
		}
		line("Content", "%s, %d bytes: %s", c.Role, c.Size, state)
	}
}
