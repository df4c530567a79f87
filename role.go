package berth

import (
	"slices"
	"strings"
)

// A Permission is a kind of operation. A set of permissions is their sum.
type Permission uint16

const (
	MayRead               Permission = 1 << iota // objects of the project, and what clients must know of the server
	MayRun                                       // responses and containers, with the files that they need
	MayAttach                                    // to containers: commands, terminals, files, desktops and ports
	MayApprove                                   // or refuse calls that wait for approval
	MayManage                                    // what outlasts runs, such as skills, templates and secrets
	MayReadUsage                                 // and costs, and the status of the server
	MayReadAudit                                 // the audit record
	MayReadOrganization                          // the lists of projects and keys
	MayManageOrganization                        // projects and keys
	MayProvision                                 // the users and groups of SCIM
)

// permissionNames are the names of permissions, in their order.
var permissionNames = []string{"read", "run", "attach", "approve", "manage", "usage", "audit", "organization.read",
	"organization.manage", "provision"}

// Permissions returns all permissions, one by one.
func Permissions() []Permission {
	all := make([]Permission, len(permissionNames))
	for i := range all {
		all[i] = 1 << i
	}
	return all
}

// String returns the names of permissions.
func (p Permission) String() string {
	var names []string
	for i, name := range permissionNames {
		if p&(1<<i) != 0 {
			names = append(names, name)
		}
	}
	return strings.Join(names, " or ")
}

// A Role is a set of permissions in a project, or in the organization.
type Role string

const (
	RoleViewer     Role = "viewer"
	RoleRunner     Role = "runner"
	RoleApprover   Role = "approver"
	RoleMaintainer Role = "maintainer" // all that a key of the project may do
	RoleAuditor    Role = "auditor"    // of the organization
	RoleAdmin      Role = "admin"      // of the organization: all that an admin key may do

	// RoleProvisioner is of the organization: for the key of the provider of identities.
	RoleProvisioner Role = "provisioner"
)

// rolePermissions are the permissions of roles.
var rolePermissions = map[Role]Permission{
	RoleViewer:     MayRead | MayReadUsage,
	RoleRunner:     MayRead | MayReadUsage | MayRun | MayAttach,
	RoleApprover:   MayRead | MayReadUsage | MayApprove,
	RoleMaintainer: MayRead | MayReadUsage | MayRun | MayAttach | MayApprove | MayManage | MayReadAudit,
	RoleAuditor:    MayReadUsage | MayReadAudit | MayReadOrganization,
	RoleAdmin:      MayReadUsage | MayReadAudit | MayReadOrganization | MayManageOrganization | MayProvision,

	RoleProvisioner: MayProvision,
}

// ProjectRoles are the roles in a project, and OrganizationRoles those in the organization.
var (
	ProjectRoles      = []Role{RoleViewer, RoleRunner, RoleApprover, RoleMaintainer}
	OrganizationRoles = []Role{RoleAuditor, RoleAdmin, RoleProvisioner}
)

// RolesOf returns the roles that a project has.
func RolesOf(p ProjectID) []Role {
	if p == AdminProject {
		return OrganizationRoles
	}
	return ProjectRoles
}

// Permissions returns the permissions of a role in a project: none if the project has no such role.
func (r Role) Permissions(p ProjectID) Permission {
	if !slices.Contains(RolesOf(p), r) {
		return 0
	}
	return rolePermissions[r]
}

// AllPermissions returns the permissions of a key without a role.
func AllPermissions(p ProjectID) Permission {
	if p == AdminProject {
		return rolePermissions[RoleAdmin]
	}
	return rolePermissions[RoleMaintainer]
}

// A KeyScope narrows what a key may do beside its role. An absent list does not.
type KeyScope struct {
	Routes []string `json:"routes,omitempty"` // such as POST /v1/responses; a * at the end matches the rest
	Tools  []string `json:"tools,omitempty"`  // types of tools that its requests may have; without MayAttach then
}

// Empty reports whether the scope narrows nothing.
func (s KeyScope) Empty() bool { return len(s.Routes)+len(s.Tools) == 0 }

// Permits reports whether the scope has a route, by its pattern.
func (s KeyScope) Permits(pattern string) bool {
	return len(s.Routes) == 0 || slices.ContainsFunc(s.Routes, func(route string) bool {
		start, ok := strings.CutSuffix(route, "*")
		return route == pattern || ok && strings.HasPrefix(pattern, start)
	})
}
