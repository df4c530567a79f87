package kubernetes

import "time"

// The types are those of Kubernetes' API, with the fields that the driver reads or writes.

type meta struct {
	Name              string            `json:"name,omitempty"`
	UID               string            `json:"uid,omitempty"`
	ResourceVersion   string            `json:"resourceVersion,omitempty"`
	Labels            map[string]string `json:"labels,omitempty"`
	Annotations       map[string]string `json:"annotations,omitempty"`
	DeletionTimestamp *time.Time        `json:"deletionTimestamp,omitempty"`
	Owners            []ownerReference  `json:"ownerReferences,omitempty"`
}

// An ownerReference names the object that has made another one.
type ownerReference struct {
	APIVersion string `json:"apiVersion"`
	Kind       string `json:"kind"`
	UID        string `json:"uid"`
	Controller bool   `json:"controller,omitempty"`
}

type listMeta struct {
	ResourceVersion string `json:"resourceVersion,omitempty"`
	Continue        string `json:"continue,omitempty"`
}

type pod struct {
	APIVersion string    `json:"apiVersion,omitempty"`
	Kind       string    `json:"kind,omitempty"`
	Metadata   meta      `json:"metadata"`
	Spec       podSpec   `json:"spec"`
	Status     podStatus `json:"status,omitzero"`
}

// A partialObject is any object without its spec and status.
type partialObject struct {
	Metadata meta `json:"metadata"`
}

type partialList struct {
	Metadata listMeta        `json:"metadata"`
	Items    []partialObject `json:"items"`
}

type podSpec struct {
	SchedulingGates       []named           `json:"schedulingGates,omitempty"`
	RuntimeClassName      string            `json:"runtimeClassName,omitempty"`
	NodeSelector          map[string]string `json:"nodeSelector,omitempty"`
	Tolerations           []Toleration      `json:"tolerations,omitempty"`
	ImagePullSecrets      []named           `json:"imagePullSecrets,omitempty"`
	Hostname              string            `json:"hostname,omitempty"`
	DNSPolicy             string            `json:"dnsPolicy,omitempty"`
	DNSConfig             *dnsConfig        `json:"dnsConfig,omitempty"`
	RestartPolicy         string            `json:"restartPolicy,omitempty"`
	GracePeriod           *int64            `json:"terminationGracePeriodSeconds,omitempty"`
	ActiveDeadlineSeconds int64             `json:"activeDeadlineSeconds,omitempty"`
	ServiceAccountToken   *bool             `json:"automountServiceAccountToken,omitempty"`
	ServiceLinks          *bool             `json:"enableServiceLinks,omitempty"`
	SecurityContext       *podSecurity      `json:"securityContext,omitempty"`
	Containers            []podContainer    `json:"containers"`
	Volumes               []volume          `json:"volumes,omitempty"`
	NodeName              string            `json:"nodeName,omitempty"`
}

type named struct {
	Name string `json:"name"`
}

// A Toleration is a Pod's permission to run on nodes with a taint, as in Kubernetes' API.
type Toleration struct {
	Key      string `json:"key,omitempty"`
	Operator string `json:"operator,omitempty"` // Exists or Equal
	Value    string `json:"value,omitempty"`
	Effect   string `json:"effect,omitempty"` // NoSchedule, PreferNoSchedule or NoExecute
	Seconds  *int64 `json:"tolerationSeconds,omitempty"`
}

type dnsConfig struct {
	Nameservers []string    `json:"nameservers,omitempty"`
	Options     []dnsOption `json:"options,omitempty"`
}

type dnsOption struct {
	Name  string `json:"name"`
	Value string `json:"value,omitempty"`
}

type podSecurity struct {
	RunAsUser    *int64   `json:"runAsUser,omitempty"`
	RunAsGroup   *int64   `json:"runAsGroup,omitempty"`
	RunAsNonRoot *bool    `json:"runAsNonRoot,omitempty"`
	Seccomp      *seccomp `json:"seccompProfile,omitempty"`
	Sysctls      []sysctl `json:"sysctls,omitempty"`
}

type seccomp struct {
	Type string `json:"type"`
}

type sysctl struct {
	Name  string `json:"name"`
	Value string `json:"value"`
}

type podContainer struct {
	Name            string             `json:"name"`
	Image           string             `json:"image"`
	Command         []string           `json:"command"`
	WorkingDir      string             `json:"workingDir,omitempty"`
	Env             []variable         `json:"env,omitempty"`
	Resources       resources          `json:"resources,omitzero"`
	VolumeMounts    []volumeMount      `json:"volumeMounts,omitempty"`
	SecurityContext *containerSecurity `json:"securityContext,omitempty"`
	MessagePolicy   string             `json:"terminationMessagePolicy,omitempty"`
}

type variable struct {
	Name  string `json:"name"`
	Value string `json:"value"`
}

type resources struct {
	Limits   map[string]string `json:"limits,omitempty"`
	Requests map[string]string `json:"requests,omitempty"`
}

type volumeMount struct {
	Name      string `json:"name"`
	MountPath string `json:"mountPath"`
}

type containerSecurity struct {
	AllowPrivilegeEscalation *bool         `json:"allowPrivilegeEscalation,omitempty"`
	ReadOnlyRootFilesystem   *bool         `json:"readOnlyRootFilesystem,omitempty"`
	Capabilities             *capabilities `json:"capabilities,omitempty"`
}

type capabilities struct {
	Add  []string `json:"add,omitempty"`
	Drop []string `json:"drop,omitempty"`
}

type volume struct {
	Name     string    `json:"name"`
	EmptyDir *emptyDir `json:"emptyDir,omitempty"`
}

type emptyDir struct {
	Medium    string `json:"medium,omitempty"`
	SizeLimit string `json:"sizeLimit,omitempty"`
}

type podStatus struct {
	Phase      string            `json:"phase,omitempty"`
	Reason     string            `json:"reason,omitempty"`
	Message    string            `json:"message,omitempty"`
	Conditions []condition       `json:"conditions,omitempty"`
	Containers []containerStatus `json:"containerStatuses,omitempty"`
}

type condition struct {
	Type    string `json:"type"`
	Status  string `json:"status"`
	Reason  string `json:"reason,omitempty"`
	Message string `json:"message,omitempty"`
}

type containerStatus struct {
	Name  string         `json:"name"`
	State containerState `json:"state"`
}

type containerState struct {
	Waiting *struct {
		Reason  string `json:"reason,omitempty"`
		Message string `json:"message,omitempty"`
	} `json:"waiting,omitempty"`
	Running    *struct{}   `json:"running,omitempty"`
	Terminated *terminated `json:"terminated,omitempty"`
}

type terminated struct {
	ExitCode int    `json:"exitCode"`
	Reason   string `json:"reason,omitempty"`
	Message  string `json:"message,omitempty"`
}

// A status is the API server's answer to a failed request.
type status struct {
	Kind    string `json:"kind"`
	Status  string `json:"status"`
	Message string `json:"message"`
	Reason  string `json:"reason"`
	Code    int    `json:"code"`
	Details struct {
		Name string `json:"name"`
		Kind string `json:"kind"`
	} `json:"details"`
}

type networkPolicy struct {
	APIVersion string            `json:"apiVersion"`
	Kind       string            `json:"kind"`
	Metadata   meta              `json:"metadata"`
	Spec       networkPolicySpec `json:"spec"`
}

// A networkPolicySpec without rules permits nothing of its types.
type networkPolicySpec struct {
	PodSelector selector `json:"podSelector"`
	PolicyTypes []string `json:"policyTypes"`
}

type selector struct {
	MatchLabels map[string]string `json:"matchLabels"`
}

type runtimeClass struct {
	Handler string `json:"handler"`
}
