package planning

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"strings"

	"github.com/spf13/cobra"
	"stele.dev/stele/cmd/stele/internal/client"
	"stele.dev/stele/cmd/stele/internal/compiling"
	"stele.dev/stele/cmd/stele/internal/gitrepo"
	"stele.dev/stele/cmd/stele/internal/show"
	"stele.dev/stele/core/resources/plans"
	"stele.dev/stele/policy"
	"stele.dev/stele/policy/bundles"
	"stele.dev/stele/policy/compile"
	"stele.dev/stele/policy/plan"
	"stele.dev/stele/policy/probes"
)

// origin is what --from names.
type origin struct {
	text string
	// git is a revision of git, folder the folder of a bundle, digest the beginning of a digest, moment a MOMENT. At most
	// one is set; if none is, the policy in force is meant.
	git, folder, digest, moment string
}

// aDigest matches what is rather a digest than a revision of the log: it has a letter, or is as long as no revision.
var aDigest = regexp.MustCompile(`^[0-9a-f]{6,64}$`)

// parseOrigin parses --from.
func parseOrigin(text string) (origin, error) {
	o := origin{text: text}
	if revision, ok := strings.CutPrefix(text, "git:"); ok {
		if revision == "" {
			return o, errors.New("--from git: names no revision of git; write for example --from git:origin/main")
		}
		o.git = revision
		return o, nil
	}
	if text == "now" {
		return o, nil
	}
	if info, err := os.Stat(text); err == nil && info.IsDir() || strings.ContainsRune(text, os.PathSeparator) {
		o.folder = text
		return o, nil
	}
	if aDigest.MatchString(text) && (strings.ContainsAny(text, "abcdef") || len(text) > 19) {
		o.digest = text
		return o, nil
	}
	o.moment = text
	return o, nil
}

// isLocal reports whether the other side is on this machine.
func (o *origin) isLocal() bool { return o.git != "" || o.folder != "" }

// inForce reports whether the other side is the policy in force.
func (o *origin) inForce() bool { return !o.isLocal() && o.digest == "" && o.moment == "" }

// loaded is a compiled bundle.
type loaded struct {
	policy *policy.Policy
	source *bundles.Source
	accept []plan.Accepted
	side   plan.Side
}

// compileTarget compiles a bundle in a child process. It prints the errors of the bundle.
func compileTarget(ctx context.Context, cmd *cobra.Command, o *compiling.Options, source *bundles.Source, name string) (*compile.Result, error) {
	compiled, diags, err := o.Compile(ctx, source)
	if err == nil && len(diags) > 0 {
		err = show.ErrDiagnostics(cmd.ErrOrStderr(), source, diags, name)
	}
	return compiled, err
}

// load loads a compiled bundle.
func load(compiled *compile.Result) (*loaded, error) {
	encoded, _ := compiled.Form.Encode()
	p, err := probes.Load(encoded)
	if err != nil {
		return nil, err
	}
	return &loaded{policy: p, source: compiled.Source, accept: compiled.Accept}, nil
}

// compileOtherSide compiles the other side of a bundle, if it is on this machine.
func (o *options) compileOtherSide(ctx context.Context, cmd *cobra.Command, from *origin, t compiling.Target) (*loaded, error) {
	var source *bundles.Source
	var side plan.Side
	var name string
	var err error
	if from.folder != "" {
		if source, err = bundles.ReadDir(from.folder); err != nil {
			return nil, err
		}
		side.Folder, name = folderText(from.folder, source), from.folder
	} else {
		repository, dir, err := repositoryOf(ctx, t)
		if err != nil {
			return nil, err
		}
		if side.Commit, err = repository.Commit(ctx, from.git); err != nil {
			return nil, err
		}
		if source, err = repository.Bundle(ctx, side.Commit, dir); err != nil {
			return nil, err
		}
		side.Folder, name = source.Package, fmt.Sprintf("%s of %s", dir, from.text)
	}
	compiled, err := compileTarget(ctx, cmd, &o.compile, source, name)
	if err != nil {
		return nil, err
	}
	l, err := load(compiled)
	if err != nil {
		return nil, err
	}
	l.side = side
	return l, nil
}

// folderText is the folder of a bundle for documents, which have no absolute paths.
func folderText(dir string, source *bundles.Source) string {
	if filepath.IsAbs(dir) {
		return source.Package
	}
	return filepath.ToSlash(filepath.Clean(dir))
}

// repositoryOf returns the git repository of a bundle, and the bundle's folder in it.
func repositoryOf(ctx context.Context, t compiling.Target) (*gitrepo.Repository, string, error) {
	root, err := moduleRoot(t)
	if err != nil {
		return nil, "", err
	}
	prefix, err := gitrepo.FindPrefix(ctx, root)
	if err != nil {
		return nil, "", fmt.Errorf("%s is in no git repository, so --from git:… names nothing: %w", t.Name, err)
	}
	return &gitrepo.Repository{Dir: root}, path.Join(prefix, t.Source.Package), nil
}

// moduleRoot returns the folder of the module of a bundle.
func moduleRoot(t compiling.Target) (string, error) {
	abs, err := filepath.Abs(t.Name)
	if err != nil || t.Source.Package == "." {
		return abs, err
	}
	return strings.TrimSuffix(abs, filepath.FromSlash("/"+t.Source.Package)), nil
}

// wire returns the other side for the server; nil for the policy in force.
func (o *origin) wire(ctx context.Context, flags *client.Flags, policies *client.Policies) (*plans.From, error) {
	switch {
	case o.digest != "":
		list, err := policies.List(ctx)
		if err != nil {
			return nil, err
		}
		p, err := client.FindPolicy(list, o.digest)
		if err != nil {
			return nil, err
		}
		return &plans.From{Digest: p.Name}, nil
	case o.moment != "":
		config, _, err := flags.Config()
		if err != nil {
			return nil, err
		}
		revision, err := client.Resolve(ctx, config, o.moment)
		if unread := new(client.NoMomentError); errors.As(err, &unread) {
			return nil, fmt.Errorf("--from %s is not a folder, a digest, git:REVISION or a moment; a moment is %s", o.moment, client.MomentUsage)
		}
		if err != nil {
			return nil, err
		}
		return &plans.From{Revision: revision}, nil
	}
	return nil, nil
}
