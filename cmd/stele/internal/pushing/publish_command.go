// This file has the command `stele policy publish`, which puts a bundle into an OCI registry.

package pushing

import (
	"fmt"

	"github.com/spf13/cobra"
	"stele.dev/stele/cmd/stele/internal/artifact"
	"stele.dev/stele/cmd/stele/internal/compiling"
	"stele.dev/stele/cmd/stele/internal/gitrepo"
	"stele.dev/stele/cmd/stele/internal/show"
	"stele.dev/stele/cmd/stele/internal/usage"
)

type publishOptions struct {
	key, credentials string
	clean            bool
	compile          compiling.Options
}

// PublishCommand returns the command `stele policy publish`.
func PublishCommand() *cobra.Command {
	o := &publishOptions{}
	cmd := &cobra.Command{
		Use:   "publish DIR REF",
		Short: "Put the bundle in a folder into an OCI registry",
		Long: `Publish compiles the bundle in a folder, and pushes its files to an OCI registry. It prints the
reference with the digest. The digest depends on the files of the bundle and on its commit only.
Servers with stele serve --policy-oci take the policy from there. A bundle with errors is refused.

REF is REGISTRY/REPOSITORY:TAG. The registry is asked with HTTPS, or with HTTP if it is on this
machine. Credentials are those of docker or podman.

With --sign-key it signs the digest, and pushes the signature beside the artifact, under the tag
sha256-HEX.stele-sig. It replaces a signature that is there.`,
		Example: `  stele policy publish clusters/prod registry.example.com/platform/policy:prod --sign-key ~/.ssh/id_ed25519`,
		Args:    usage.Exactly("DIR, the folder of the bundle", "REF, the reference in the registry"),
		RunE:    func(cmd *cobra.Command, args []string) error { return o.run(cmd, args[0], args[1]) },
	}
	cmd.Flags().StringVar(&o.key, "sign-key", "", "`FILE` of the private SSH key that signs the artifact")
	cmd.Flags().StringVar(&o.credentials, "credentials", "", "`FILE` like docker's config.json (default: the configuration of docker or podman of the user)")
	cmd.Flags().BoolVar(&o.clean, "require-clean", false, "refuse a module that differs from its commit in git")
	o.compile.AddFlags(cmd.Flags())
	return cmd
}

func (o *publishOptions) run(cmd *cobra.Command, dir, text string) error {
	ctx, stop := usage.Interruptible(cmd)
	defer stop()
	ref, err := artifact.ParseTag(text)
	if err != nil {
		return err
	}
	registry, err := artifact.Open(ref, o.credentials)
	if err != nil {
		return fmt.Errorf("--credentials: %w", err)
	}
	compiled, err := o.compile.Folder(ctx, cmd, dir)
	if err != nil {
		return err
	}
	show.Warn(cmd.ErrOrStderr(), compiled)
	from, err := gitrepo.ReadCheckout(ctx, dir, compiled.Source)
	if err == nil && o.clean {
		err = from.Clean(dir)
	}
	if err != nil {
		return err
	}
	commit := ""
	if len(from.Changed) == 0 {
		commit = from.String()
	}
	a, err := artifact.Pack(compiled.Source, commit)
	if err != nil {
		return err
	}
	var signature []byte
	if o.key != "" {
		if signature, err = a.Sign(o.key); err != nil {
			return fmt.Errorf("--sign-key: %w", err)
		}
	}
	if err := registry.Push(ctx, a, signature); err != nil {
		return fmt.Errorf("push %s: %w", ref, err)
	}
	_, err = fmt.Fprintf(cmd.OutOrStdout(), "%s@%s\n", ref, a.Digest())
	return err
}
