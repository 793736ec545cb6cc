package proofs

import (
	"context"
	"fmt"
	"net/url"
	"strconv"

	"github.com/spf13/cobra"
	"stele.dev/stele/cmd/stele/internal/client"
	"stele.dev/stele/cmd/stele/internal/usage"
	"stele.dev/stele/core/keep/logapi"
	"stele.dev/stele/eventlog/proof"
)

// proveOptions are the flags of prove.
type proveOptions struct {
	serverFlags
	head, from, file string
	contents         bool
}

func proveCommand() *cobra.Command {
	o := &proveOptions{}
	cmd := &cobra.Command{
		Use:   "prove REVISION",
		Short: "Write a proof that an event is in the log, or that the log goes on from a tree head",
		Long: `Prove asks the server for a proof and writes it as JSON. ` + "`stele proof check`" + ` verifies it later, without
the server.

With a revision it proves that the event of that revision is in the log of a tree head, with the
event's metadata: who changed what, when, and by which rule. The contents are in it as hashes; with
--contents they are in it themselves, as far as they are kept.

With --from it proves that the log of the newer head begins with the whole log of the older one.

--head names the file of the (newer) head; without it, it is the newest, and not signed.

The exit code is 3 if the server cannot prove it, because what is around a head is forgotten.`,
		Example: `  stele proof prove 1234 --head head.txt --file proof.json
  stele proof prove --from old.txt --head head.txt --file proof.json`,
		Args: usage.AtMost(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			if (len(args) == 1) == (o.from != "") {
				return usage.Errorf("give a revision, or --from and the file of an older head%s", usage.ForExample(cmd))
			}
			return o.run(cmd, args)
		},
	}
	o.addFlags(cmd)
	f := cmd.Flags()
	f.StringVar(&o.head, "head", "", "file of the tree head to which the proof leads (default: the newest, unsigned)")
	f.StringVar(&o.from, "from", "", "file of an older tree head from which the log goes on")
	f.StringVar(&o.file, "file", "", "write to this file (default: standard output)")
	f.BoolVar(&o.contents, "contents", false, "with what the event wrote, as far as it is kept")
	for _, name := range []string{"head", "from", "file"} {
		_ = cmd.MarkFlagFilename(name)
	}
	cmd.ValidArgsFunction = cobra.NoFileCompletions
	return cmd
}

func (o *proveOptions) run(cmd *cobra.Command, args []string) error {
	ctx, stop := usage.Interruptible(cmd)
	defer stop()
	server, err := o.connect()
	if err != nil {
		return err
	}
	var head namedHead
	if o.head != "" {
		head, err = new(keyFlags).readHead(o.head)
	} else if head.head, err = server.head(ctx, 0); err == nil {
		head.text = head.head.Text()
	}
	if err != nil {
		return err
	}
	if o.from != "" {
		from, err := new(keyFlags).readHead(o.from)
		if err != nil {
			return err
		}
		p, err := server.consistency(ctx, from, head)
		if err != nil {
			return err
		}
		return write(cmd, o.file, p.Encode())
	}
	revision, err := strconv.ParseUint(args[0], 10, 64)
	if err != nil {
		return usage.Errorf("%q is not a revision: use the number of a change, as `stele log` shows it", args[0])
	}
	p, err := server.inclusion(ctx, revision, head, o.contents)
	if err != nil {
		return err
	}
	return write(cmd, o.file, p.Encode())
}

// inclusion reads the proof that the event of a revision is in the tree of a head, and checks it. The text of the
// head becomes part of the proof.
func (s server) inclusion(ctx context.Context, revision uint64, head namedHead, contents bool) (*proof.Inclusion, error) {
	path := logapi.InclusionPath
	if contents {
		path = logapi.ContentsPath
	}
	query := url.Values{"revision": {strconv.FormatUint(revision, 10)}, "size": {strconv.FormatUint(head.head.Size, 10)}}
	document, err := client.Read(ctx, s.config, path, query)
	if err != nil {
		return nil, incomparable(err)
	}
	p, err := proof.DecodeInclusion(document)
	if err != nil {
		return nil, err
	}
	p.Head = head.text
	if _, err := p.Verify(head.head); err != nil {
		return nil, fmt.Errorf("the server's log is not that of the head of size %d: %w", head.head.Size, err)
	}
	return p, nil
}
