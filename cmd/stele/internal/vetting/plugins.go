package vetting

import (
	"context"
	"fmt"
	"io"

	"stele.dev/stele/cmd/stele/internal/usage"
	coreplugins "stele.dev/stele/core/reviewers/plugins"
	"stele.dev/stele/plugins/host"
	"stele.dev/stele/policy/bundles"
	"stele.dev/stele/policy/compile"
	"stele.dev/stele/policy/pluginconfig"
	"stele.dev/stele/schemas"
)

// checkPlugins starts the plugins of a bundle, and checks their configurations and secrets. Without a folder of
// programs it prints that nothing was checked.
func checkPlugins(ctx context.Context, stderr io.Writer, compiled *compile.Result, source *bundles.Source, folder string) (schemas.Diagnostics, error) {
	plugins := compiled.Form.Plugins
	if len(plugins) == 0 {
		return nil, nil
	}
	if folder == "" {
		fmt.Fprintf(stderr, "The configuration of %s was not checked: --plugin-dir says where the programs are.\n", usage.Count(len(plugins), "plugin"))
		return nil, nil
	}
	h, err := host.New(host.Options{Dir: folder})
	if err != nil {
		return nil, err
	}
	defer h.Close()
	var diags schemas.Diagnostics
	configs := map[string]string{}
	uses := map[string]host.Services{}
	for _, s := range coreplugins.Specs(compiled.Form) {
		uses[s.Name] = s.Uses
	}
	for _, p := range plugins {
		is, err := h.Describe(ctx, host.Spec{Name: p.Name, SHA256: p.SHA256, Uses: uses[p.Name]})
		if err != nil {
			diags = append(diags, schemas.Diagnostic{Pos: p.Source, Message: err.Error()})
			continue
		}
		configs[p.Name] = is.GetConfigSchema()
		for _, name := range is.GetSecrets() {
			if _, given := p.Secrets[name]; !given {
				diags = append(diags, schemas.Diagnostic{Pos: p.Source, Path: "bundle.plugins." + p.Name + ".secrets",
					Message: fmt.Sprintf("the plugin needs the secret %q", name), Hint: "name the file in the operator's folder: " + name + ": secret: …"})
			}
		}
	}
	return append(diags, pluginconfig.Check(source, configs)...).Sorted(), nil
}
