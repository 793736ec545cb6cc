package explaining

import (
	"context"
	"fmt"
	"os/exec"
	"strings"

	"github.com/spf13/cobra"
	"k8s.io/apiserver/pkg/authentication/serviceaccount"
	"sigs.k8s.io/yaml"
	"stele.dev/stele/cmd/stele/internal/usage"
	"stele.dev/stele/core/resources/explain"
	"stele.dev/stele/core/run/suiterun"
	"stele.dev/stele/limits/child"
	"stele.dev/stele/policy/suites"
)

// offline explains a request by the bundle in a folder.
func (o *options) offline(ctx context.Context, cmd *cobra.Command, args []string) (*explain.Explanation, error) {
	if o.user == "" {
		return nil, usage.Errorf("--bundle needs --as: without a server nobody is logged in")
	}
	person, err := o.person()
	if err != nil {
		return nil, err
	}
	q, err := o.request(cmd, args)
	if err != nil {
		return nil, err
	}
	compiled, err := o.compile.Folder(ctx, cmd, o.bundle)
	if err != nil {
		return nil, err
	}
	r, err := suiterun.New(ctx, compiled, suiterun.Options{Worker: func() (*exec.Cmd, error) { return child.Command("policy", "evaluate") }})
	if err != nil {
		return nil, err
	}
	defer r.Close()
	return r.Explain(ctx, person, q, o.Everywhere)
}

// person returns the user whom the flags name.
func (o *options) person() (*suites.Person, error) {
	extra, err := o.extras()
	p := &suites.Person{User: o.user, UID: o.uid, Groups: o.groups, Extra: extra}
	if namespace, name, e := serviceaccount.SplitUsername(o.user); e == nil && len(o.groups) == 0 {
		p.ServiceAccount = namespace + "/" + name // it has the groups of service accounts, as when it is impersonated
	}
	return p, err
}

// request returns the request that the arguments describe.
func (o *options) request(cmd *cobra.Command, args []string) (*suites.Request, error) {
	q := &suites.Request{Verb: args[0], FieldSelector: o.fieldSelector, LabelSelector: o.labelSelector}
	if len(args) == 3 {
		q.Name = args[2]
	}
	if strings.HasPrefix(args[1], "/") {
		q.Verb, q.Path = strings.ToLower(q.Verb), args[1]
		if q.Name != "" {
			return nil, usage.Errorf("a path has no NAME")
		}
		return q, nil
	}
	q.Resource = args[1]
	if o.Namespace != "" {
		q.Namespace = &o.Namespace
	}
	if o.file == "" {
		return q, nil
	}
	if q.Verb != "create" {
		return nil, usage.Errorf("-f with --bundle is for create: no other object exists")
	}
	text, err := readFile(cmd.InOrStdin(), o.file)
	if err != nil {
		return nil, err
	}
	if q.Object, err = yaml.YAMLToJSON(text); err != nil {
		return nil, fmt.Errorf("%s: %w", o.file, err)
	}
	return q, nil
}
