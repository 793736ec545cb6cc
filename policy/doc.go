// Package policy enforces the policy of one control plane: it authorizes requests and checks
// objects.
//
// Package compile makes a [Form] from a bundle, which is written in CUE. The form is plain data, and
// its digest identifies the policy. [New] loads a form on each replica, without CUE. Built-in kinds
// and roles are part of the form, so that upgrading the program does not change them. The form
// contains [Probes], which make [New] reject a form that this version of the program would enforce
// differently.
//
// [Policy.Authorize] decides requests, [Policy.Admit] and [Version.ValidateRules] check objects, and
// [Policy.Consider] explains decisions.
//
// A bundle is enforced as a whole: compiling rejects parts of the format that this version does not
// enforce, with their lines.
//
// A [Policy] never changes and is safe for concurrent use.
package policy
