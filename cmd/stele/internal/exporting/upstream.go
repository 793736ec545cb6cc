package exporting

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"

	"github.com/google/cel-go/cel"
	admissionv1 "k8s.io/api/admissionregistration/v1"
	"k8s.io/apiextensions-apiserver/pkg/apis/apiextensions"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	crdvalidation "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/validation"
	"k8s.io/apimachinery/pkg/api/validate/content"
	"k8s.io/apimachinery/pkg/api/validation"
	metav1validation "k8s.io/apimachinery/pkg/apis/meta/v1/validation"
	utilvalidation "k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
	plugincel "k8s.io/apiserver/pkg/admission/plugin/cel"
	"k8s.io/apiserver/pkg/cel/environment"
)

// refused returns what kube-apiserver has against an object in JSON, by its own validation as far as that is a library: definitions, and
// expressions of admission policies. Of other objects, the names are checked.
func refused(kind, name string, text []byte) error {
	switch kind {
	case "CustomResourceDefinition":
		return decoded(text, refusedDefinition)
	case "ValidatingAdmissionPolicy":
		return decoded(text, refusedValidating)
	case "MutatingAdmissionPolicy":
		return decoded(text, refusedMutating)
	case "ValidatingWebhookConfiguration", "MutatingWebhookConfiguration":
		return decoded(text, refusedWebhooks)
	case "ValidatingAdmissionPolicyBinding", "MutatingAdmissionPolicyBinding", "FlowSchema", "PriorityLevelConfiguration":
		return nameOf(name, validation.NameIsDNSSubdomain)
	}
	return nameOf(name, func(name string, _ bool) []string { return content.IsPathSegmentName(name) })
}

// decoded calls check with the object.
func decoded[T any](text []byte, check func(*T) error) error {
	object := new(T)
	if err := json.Unmarshal(text, object); err != nil {
		return err
	}
	return check(object)
}

func nameOf(name string, valid func(string, bool) []string) error {
	if faults := valid(name, false); len(faults) > 0 {
		return fmt.Errorf("the name %q: %s", name, strings.Join(faults, "; "))
	}
	return nil
}

func refusedDefinition(d *apiextensionsv1.CustomResourceDefinition) error {
	d = d.DeepCopy()
	apiextensionsv1.SetDefaults_CustomResourceDefinition(d)
	apiextensionsv1.SetDefaults_CustomResourceDefinitionSpec(&d.Spec)
	var internal apiextensions.CustomResourceDefinition
	if err := apiextensionsv1.Convert_v1_CustomResourceDefinition_To_apiextensions_CustomResourceDefinition(d, &internal, nil); err != nil {
		return err
	}
	for _, v := range d.Spec.Versions { // as the strategy of the registry does
		if v.Storage {
			internal.Status.StoredVersions = []string{v.Name}
		}
	}
	return crdvalidation.ValidateCustomResourceDefinition(context.Background(), &internal).ToAggregate()
}

func refusedWebhooks(c *admissionv1.ValidatingWebhookConfiguration) error {
	if err := nameOf(c.Name, validation.NameIsDNSSubdomain); err != nil {
		return err
	}
	for i := range c.Webhooks {
		if errs := utilvalidation.IsFullyQualifiedName(field.NewPath("webhooks").Index(i).Child("name"), c.Webhooks[i].Name); len(errs) > 0 {
			return errs.ToAggregate()
		}
	}
	return nil
}

func refusedValidating(p *admissionv1.ValidatingAdmissionPolicy) error {
	c, err := newExpressions(p.Name, p.Spec.MatchConstraints, p.Spec.MatchConditions, p.Spec.Variables, plugincel.OptionalVariableDeclarations{HasParams: p.Spec.ParamKind != nil, HasAuthorizer: true})
	if err != nil {
		return err
	}
	for _, v := range p.Spec.Validations {
		c.check("the expression", v.Expression, cel.BoolType)
		if v.MessageExpression != "" {
			c.check("the messageExpression", v.MessageExpression, cel.StringType)
		}
	}
	for _, a := range p.Spec.AuditAnnotations {
		c.check("the valueExpression", a.ValueExpression, cel.StringType, cel.NullType)
	}
	return c.err
}

func refusedMutating(p *admissionv1.MutatingAdmissionPolicy) error {
	c, err := newExpressions(p.Name, p.Spec.MatchConstraints, p.Spec.MatchConditions, p.Spec.Variables,
		plugincel.OptionalVariableDeclarations{HasParams: p.Spec.ParamKind != nil, HasAuthorizer: true, HasPatchTypes: true})
	if err != nil {
		return err
	}
	for _, m := range p.Spec.Mutations {
		if m.ApplyConfiguration != nil {
			c.check("the expression", m.ApplyConfiguration.Expression, cel.ObjectType("Object"))
		}
		if m.JSONPatch != nil {
			c.check("the expression", m.JSONPatch.Expression, cel.ListType(cel.ObjectType("JSONPatch")))
		}
	}
	return c.err
}

// expressions compiles the expressions of one policy, as kube-apiserver does when the policy is created.
type expressions struct {
	compiler *plugincel.CompositedCompiler
	options  plugincel.OptionalVariableDeclarations
	err      error // the first one
}

// expression is one for the compiler. It has a name if it is a variable.
type expression struct {
	name, text string
	types      []*cel.Type
}

func (e expression) GetName() string          { return e.name }
func (e expression) GetExpression() string    { return e.text }
func (e expression) ReturnTypes() []*cel.Type { return e.types }

// newExpressions checks the name and what a policy matches, and compiles its conditions and variables.
func newExpressions(name string, match *admissionv1.MatchResources, conditions []admissionv1.MatchCondition, variables []admissionv1.Variable, options plugincel.OptionalVariableDeclarations) (*expressions, error) {
	if err := nameOf(name, validation.NameIsDNSSubdomain); err != nil {
		return nil, err
	}
	if match != nil {
		for _, s := range []struct {
			name string
			errs field.ErrorList
		}{
			{"namespaceSelector", metav1validation.ValidateLabelSelector(match.NamespaceSelector, metav1validation.LabelSelectorValidationOptions{}, field.NewPath("namespaceSelector"))},
			{"objectSelector", metav1validation.ValidateLabelSelector(match.ObjectSelector, metav1validation.LabelSelectorValidationOptions{}, field.NewPath("objectSelector"))},
		} {
			if len(s.errs) > 0 {
				return nil, s.errs.ToAggregate()
			}
		}
	}
	compiler, err := plugincel.NewCompositedCompiler(environment.MustBaseEnvSet(environment.DefaultCompatibilityVersion()))
	if err != nil {
		return nil, err
	}
	c := &expressions{compiler: compiler, options: options}
	for _, x := range conditions {
		if faults := utilvalidation.IsQualifiedName(x.Name); len(faults) > 0 {
			return nil, fmt.Errorf("the name %q of a condition: %s", x.Name, strings.Join(faults, "; "))
		}
		c.options.HasPatchTypes = false
		c.check("the condition", x.Expression, cel.BoolType)
	}
	c.options = options
	for _, v := range variables {
		if faults := utilvalidation.IsCIdentifier(v.Name); len(faults) > 0 {
			return nil, fmt.Errorf("the name %q of a variable: %s", v.Name, strings.Join(faults, "; "))
		}
		e := expression{v.Name, v.Expression, []*cel.Type{cel.AnyType, cel.DynType}}
		if result := compiler.CompileAndStoreVariable(e, options, environment.NewExpressions); result.Error != nil && c.err == nil {
			c.err = fmt.Errorf("the variable %s: %w", v.Name, result.Error)
		}
	}
	return c, nil
}

// check compiles an expression, which must have one of the types.
func (c *expressions) check(what, text string, types ...*cel.Type) {
	e := expression{text: text, types: types}
	if result := c.compiler.CompileCELExpression(e, c.options, environment.NewExpressions); result.Error != nil && c.err == nil {
		c.err = fmt.Errorf("%s %.100q: %w", what, text, result.Error)
	}
}
