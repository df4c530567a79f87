package berth

import (
	"crypto/rand"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"regexp"
	"time"
)

// The identifiers on the wire. Distinct types keep one from being passed for another.
type (
	ProjectID      string // proj_…, the tenant; owns everything
	ResponseID     string // resp_…
	ConversationID string // conv_…
	ContainerID    string // cntr_…
	FileID         string // file-…
	CFileID        string // cfile_…, a file in a container
	SnapshotID     string // snap_…
	VolumeID       string // vol_…
	SecretID       string // sec_…
	PromptID       string // pmpt_…
	WebhookID      string // whe_…, an endpoint
	LogID          string // clog_…, a command in a container's log
	VectorStoreID  string // vs_…
	FileBatchID    string // vsfb_…
	UploadID       string // upload_…
	PartID         string // part_…, of an upload
	BatchID        string // batch_…
	SkillID        string // skill_…
	SkillVersionID string // skillver_…
	KeyID          string // key_…, an API key's name, not its secret
	SSHKeyID       string // sshkey_…, a public key
	ApprovalID     string // appr_…, a call that waits for a person
	ScheduleID     string // sched_…
	ScheduleRunID  string // srun_…, a run of a schedule
)

// projectID matches the ids of projects that operators choose.
var projectID = regexp.MustCompile(`^proj_[A-Za-z0-9_-]{1,60}$`)

// Valid returns an error unless the id has the form of a project's.
func (p ProjectID) Valid() error {
	if !projectID.MatchString(string(p)) {
		return fmt.Errorf("%q must match %s", string(p), projectID)
	}
	return nil
}

// Prefixes of identifiers, as recorded from the hosted service.
const (
	PrefixProject         = "proj_"
	PrefixResponse        = "resp_"
	PrefixConversation    = "conv_"
	PrefixMessage         = "msg_"
	PrefixReasoning       = "rs_"
	PrefixFunctionCall    = "fc_"
	PrefixFunctionOutput  = "fco_"
	PrefixCustomCall      = "ctc_"
	PrefixCustomOutput    = "ctco_"
	PrefixShellCall       = "sh_"
	PrefixShellCallOutput = "sho_"
	PrefixCodeCall        = "ci_"
	PrefixTextEditorCall  = "tec_"
	PrefixLocalShellCall  = "lsh_"
	PrefixLocalShellOut   = "lsho_"
	PrefixPatchCall       = "apc_"
	PrefixPatchOutput     = "apco_"
	PrefixToolSearch      = "tsc_"
	PrefixToolSearchOut   = "tso_"
	PrefixProgram         = "cm_"
	PrefixProgramOutput   = "cmo_"
	PrefixTools           = "at_"
	PrefixCall            = "call_"
	PrefixApproval        = "mcpr_"
	PrefixMCPCall         = "mcp_"
	PrefixMCPListTools    = "mcpl_"
	PrefixContainer       = "cntr_"
	PrefixContainerFile   = "cfile_"
	PrefixSnapshot        = "snap_"
	PrefixContainerLog    = "clog_"
	PrefixCommand         = "cmd_"  // of package command: a shell command
	PrefixCodeCommand     = "cmdc_" // of package command: code for a kernel
	PrefixVolume          = "vol_"
	PrefixSecret          = "sec_"
	PrefixFile            = "file-"
	PrefixPrompt          = "pmpt_"
	PrefixKey             = "key_"
	PrefixSSHKey          = "sshkey_"
	PrefixCallApproval    = "appr_"
	PrefixSchedule        = "sched_"
	PrefixScheduleRun     = "srun_"
	PrefixRequest         = "req_"
	PrefixWebhook         = "whe_"
	PrefixDelivery        = "wh_"
	PrefixEvent           = "evt_"
	PrefixItem            = "item_"
	PrefixCompaction      = "cmp_"
	PrefixVectorStore     = "vs_"
	PrefixFileBatch       = "vsfb_"
	PrefixFileSearch      = "fs_"
	PrefixUpload          = "upload_"
	PrefixPart            = "part_"
	PrefixBatch           = "batch_"
	PrefixMessageBatch    = "msgbatch_"
	PrefixBatchRequest    = "batch_req_"
	PrefixWebSearch       = "ws_"
	PrefixImageGeneration = "ig_"
	PrefixComputerCall    = "cu_"
	PrefixComputerOutput  = "cuo_"
	PrefixSafetyCheck     = "cu_sc_"
	PrefixSkill           = "skill_"
	PrefixSkillVersion    = "skillver_"
	PrefixInlineSkill     = "skillinl_" // never sent
)

// NewID returns a new identifier: the prefix and 48 hexadecimal digits. The first 12
// digits are the time in milliseconds, so newer identifiers sort after older ones.
// The other 144 bits are random, so identifiers cannot be guessed.
func NewID(prefix string) string {
	var b [24]byte
	rand.Read(b[:]) // never fails
	var ms [8]byte
	binary.BigEndian.PutUint64(ms[:], uint64(time.Now().UnixMilli()))
	copy(b[:6], ms[2:])
	return prefix + hex.EncodeToString(b[:])
}

// UUID returns the UUID of a seed. The same seed has the same UUID.
func UUID(seed string) string {
	sum := sha256.Sum256([]byte(seed))
	sum[6] = sum[6]&0x0f | 0x80 // version 8
	sum[8] = sum[8]&0x3f | 0x80
	return fmt.Sprintf("%x-%x-%x-%x-%x", sum[:4], sum[4:6], sum[6:8], sum[8:10], sum[10:16])
}
