# Installs dflash-local on Windows for the user who runs it, without administrator's rights. What it does:
# docs/installing.md.
#
#   irm ADDRESS/install.ps1 | iex                                  as it is
#   & ([scriptblock]::Create((irm ADDRESS/install.ps1))) -DryRun   with arguments
#
# Runs in Windows PowerShell 5.1 and PowerShell 7. A release's own copy knows where the wheels of that release are.

# Without this line, a misspelt argument would be passed over, and its value taken for that of another one.
[CmdletBinding(PositionalBinding = $false)]
param(
    [string]$Wheels = $env:DFLASH_WHEELS,     # folder with ready wheels; a URL must offer a SHA256SUMS beside them
    [string]$Version = $env:DFLASH_VERSION,   # default: the newest
    [string]$Backend = $env:DFLASH_BACKEND,   # cpu; with -FromSource what `dflash-local build` knows
    [string]$Prefix = $env:DFLASH_PREFIX,     # default: %LOCALAPPDATA%\dflash-local
    [string]$Python = $env:DFLASH_PYTHON,     # Python 3.10 or newer. Default: the first that is found
    [string]$Installer = '',                  # uv or pip. Default: uv if it is on PATH
    [switch]$FromSource,                      # take no wheels: pip's package, and llama.cpp compiled here
    [switch]$Offline,                         # without network; the folder of -Wheels has all packages
    [switch]$DryRun,                          # only say what would be done
    [switch]$Uninstall                        # remove what this script installed
)

# In a scope of its own: piped into iex, nothing of this stays in the user's session.
& {
    $ErrorActionPreference = 'Stop'
    $PSNativeCommandUseErrorActionPreference = $false # PowerShell 7; whether a program has failed is looked at here
    Set-StrictMode -Version 2.0

    $ReleaseWheels = '' # `make installers` writes the address of the release here
    $Tag = 'win_amd64'
    $Marker = 'made-by-install.ps1'
    $Setup = @{} # what Resolve-Arguments, Find-Installer and Select-Wheel find out

    function Stop-With([string]$Sentence, [string]$Fix) {
        throw "error: $Sentence`n  fix: $Fix"
    }

    function Test-Command([string]$Name) {
        return [bool](Get-Command $Name -CommandType Application -ErrorAction SilentlyContinue)
    }

    # Runs a program and returns what it writes to stdout. All of its output matters if it fails.
    function Invoke-Quietly(
        [string]$Program,
        [string[]]$Arguments,
        [string]$Sentence = "$(Split-Path -Leaf $Program) failed",
        [string]$Fix = "run it by hand: $Program $($Arguments -join ' ')"
    ) {
        # In PowerShell 5.1, a line on stderr would be an exception.
        $ErrorActionPreference = 'Continue'
        $output = @(& $Program @Arguments 2>&1)
        $ErrorActionPreference = 'Stop'
        if ($LASTEXITCODE -ne 0) {
            $lines = @($output | ForEach-Object { "$_" })
            $text = $lines -join "`n"
            if ($text -match 'SSLCertVerificationError|certificate.verify.failed|invalid peer certificate') {
                $variable = if ($Setup.Installer -eq 'uv') { 'SSL_CERT_FILE' } else { 'PIP_CERT' }
                Stop-With 'the certificate of the index of packages is not trusted, as behind a proxy that opens TLS' `
                    "set $variable to a PEM file of the authorities to trust, such as the proxy's"
            }
            if ($text -match 'new connection|getaddrinfo|unreachable|dns error|timed out|sending request') {
                Stop-With 'no network: packages that dflash-local needs cannot be fetched' `
                    'connect, or set HTTPS_PROXY, or use -Offline with a folder that has them'
            }
            $last = @("exit code $LASTEXITCODE") + @($lines | Where-Object { $_ -match 'error' }) |
                Select-Object -Last 1
            Stop-With "$Sentence ($($last -replace '^\s*error: *', ''))" $Fix
        }
        return $output | Where-Object { $_ -is [string] }
    }

    # Without backslashes at the end: PowerShell 5.1 passes them to programs so that they escape a quote.
    function Get-Trimmed([string]$Path) {
        return $Path -replace '(?<=[^:\\])\\+$', ''
    }

    # Fills $Setup: what is asked for, where everything is, and from where it comes.
    function Resolve-Arguments {
        if ([System.Environment]::OSVersion.Platform -ne 'Win32NT') {
            Stop-With 'this script is for Windows' 'run install.sh on Linux and macOS'
        }
        $Setup.Home = Resolve-Prefix
        $Setup.Command = Join-Path $Setup.Home 'bin\dflash-local.cmd'
        $Setup.Backend = if ($Backend) { $Backend } else { 'auto' }
        $Setup.Installer = $Installer
        $Setup.Python = Get-Trimmed $Python
        if ($Version -and $Version -notmatch '^[0-9]+(\.[0-9]+)+$') {
            Stop-With "-Version '$Version' is no version" 'use numbers such as 0.2.0'
        }
        if ($Installer -notin '', 'uv', 'pip') { Stop-With "-Installer '$Installer' is no installer" 'use uv or pip' }
        if ($Setup.Backend -notin 'auto', 'cpu', 'cuda', 'vulkan', 'hip') {
            Stop-With "-Backend '$Backend' is no backend" 'use auto, cpu, cuda, vulkan or hip'
        }
        Resolve-Wheels
    }

    function Resolve-Prefix {
        try {
            $folder = if ($Prefix) { $Prefix } else { Join-Path $env:LOCALAPPDATA 'dflash-local' }
            $path = $ExecutionContext.SessionState.Path.GetUnresolvedProviderPathFromPSPath($folder)
            # That of a drive such as HKCU: has no root.
            if (-not [System.IO.Path]::IsPathRooted($path)) { throw 'it is on no disk' }
        } catch {
            Stop-With "-Prefix '$Prefix' is no folder ($($_.Exception.Message))" 'name one, such as C:\dflash-local'
        }
        return Get-Trimmed $path
    }

    function Resolve-Wheels {
        $place = if ($FromSource) { '' } elseif ($Wheels) { $Wheels } else { $ReleaseWheels }
        $Setup.IsUrl = $place -match '://'
        if ($Offline -and ($Setup.IsUrl -or -not $place)) {
            Stop-With '-Offline needs a folder of wheels' 'add -Wheels DIR'
        }
        if ($Setup.IsUrl) {
            $place = $place.TrimEnd('/')
        } elseif ($place) {
            if (-not (Test-Path -LiteralPath $place -PathType Container)) {
                Stop-With "-Wheels '$place' is no folder" 'name the folder that holds the wheels, or a URL'
            }
            $place = Get-Trimmed (Resolve-Path -LiteralPath $place).ProviderPath
        }
        $Setup.Wheels = $place
    }

    function Remove-Installation {
        if (-not (Test-Path -LiteralPath (Join-Path $Setup.Home $Marker))) {
            Stop-With "nothing that this script installed is in $($Setup.Home)" 'name the -Prefix of the installation'
        }
        if ($DryRun) {
            Write-Host "would remove $($Setup.Home)"
            return
        }
        $used = Find-Used $Setup.Home
        if ($used) {
            Stop-With "$used is still in use, so nothing was removed" 'end it, then try again'
        }
        try {
            # The marker goes last: what is left can be removed by trying again.
            Get-ChildItem -LiteralPath $Setup.Home -Force | Where-Object { $_.Name -ne $Marker } |
                ForEach-Object { Remove-Item -LiteralPath $_.FullName -Recurse -Force }
            Remove-Item -LiteralPath $Setup.Home -Recurse -Force
        } catch {
            Stop-With "not all of $($Setup.Home) was removed ($($_.Exception.Message))" `
                'close what uses it, then try again'
        }
        Write-Host "removed $($Setup.Home)"
        Write-Host 'kept: the cache (DFLASH_CACHE, or .cache\dflash-local in your profile) and models'
    }

    # The path of a program below a folder that is running: Windows keeps its file.
    function Find-Used([string]$Folder) {
        # Paths that are too long for PowerShell 5.1 lead to no program.
        return Get-ChildItem -LiteralPath $Folder -Recurse -Filter '*.exe' -ErrorAction SilentlyContinue |
            ForEach-Object { $_.FullName } | Where-Object { Test-Used $_ } | Select-Object -First 1
    }

    function Test-Used([string]$File) {
        try {
            [System.IO.File]::Open($File, 'Open', 'ReadWrite', 'None').Dispose()
            return $false
        } catch {
            return $true
        }
    }

    # Sets Installer, and Python unless uv chooses it.
    function Find-Installer {
        if (-not $Setup.Installer) {
            $Setup.Installer = if (Test-Command 'uv') { 'uv' } else { 'pip' }
        }
        if ($Setup.Installer -eq 'uv') {
            if (-not (Test-Command 'uv')) { Stop-With 'uv is not on PATH' 'install it, or use -Installer pip' }
            return
        }
        $names = if ($Setup.Python) { @($Setup.Python) } else { @('python', 'python3', 'py') }
        $Setup.Python = $names | Where-Object { Test-Python $_ } | Select-Object -First 1
        if (-not $Setup.Python) {
            Stop-With 'there is no Python 3.10 or newer (64 bits) with its venv module' `
                'winget install Python.Python.3.12, or install uv, which brings its own Python'
        }
    }

    function Test-Python([string]$Name) {
        if (-not (Test-Command $Name)) { return $false }
        # The alias of Microsoft's store is a program, too: it only opens the store, and fails.
        $ErrorActionPreference = 'Continue'
        $code = 'import ensurepip, sys, venv; sys.exit(sys.version_info < (3, 10) or sys.maxsize < 2**32)'
        try {
            & $Name -I -c $code *> $null
        } catch {
            return $false # an alias that leads nowhere cannot even be started
        }
        return $LASTEXITCODE -eq 0
    }

    # The names of all wheels, and in Hashes what SHA256SUMS says of them; empty without one.
    function Get-WheelNames {
        $Setup.Hashes = @{}
        $sums = Join-Path $Setup.Work 'SHA256SUMS'
        if ($Setup.IsUrl) {
            Get-WheelFile 'SHA256SUMS' $Setup.Work
        } elseif (Test-Path -LiteralPath (Join-Path $Setup.Wheels 'SHA256SUMS')) {
            Copy-Item -LiteralPath (Join-Path $Setup.Wheels 'SHA256SUMS') -Destination $sums
        }
        if (Test-Path -LiteralPath $sums) {
            foreach ($line in Get-Content -LiteralPath $sums) {
                if ($line -match '^([0-9a-f]{64}) [ *]([^/\\]+\.whl)$') { $Setup.Hashes[$Matches[2]] = $Matches[1] }
            }
        }
        if ($Setup.IsUrl) { return @($Setup.Hashes.Keys) }
        return @(Get-ChildItem -LiteralPath $Setup.Wheels -Filter '*.whl' | ForEach-Object { $_.Name })
    }

    # The name of dflash-local's own wheel, the newest that fits.
    function Select-Wheel([string[]]$Names) {
        if ($Setup.Backend -eq 'auto') { $Setup.Backend = 'cpu' }
        $pattern = "^dflash_local-([0-9]+(?:\.[0-9]+)+)\+$($Setup.Backend)-py3-none-$Tag\.whl$"
        $found = @($Names | Where-Object { $_ -match $pattern -and (-not $Version -or $Matches[1] -eq $Version) })
        if (-not $found) {
            $asked = "dflash-local $Version".TrimEnd()
            Stop-With "$($Setup.Wheels) has no wheel of $asked for $($Setup.Backend) on $Tag" `
                'choose what is there by -Backend and -Version, or compile: -FromSource'
        }
        return $found | Sort-Object { [version][regex]::Match($_, '^dflash_local-([0-9.]+)\+').Groups[1].Value } |
            Select-Object -Last 1
    }

    # Puts a file of the wheels' place into a folder.
    function Get-WheelFile([string]$Name, [string]$Folder) {
        $target = Join-Path $Folder $Name
        if (-not $Setup.IsUrl) {
            Copy-Item -LiteralPath (Join-Path $Setup.Wheels $Name) -Destination $target
            return
        }
        $url = "$($Setup.Wheels)/$($Name.Replace('+', '%2B'))" # some servers take a plus sign for a blank
        try {
            [Net.ServicePointManager]::SecurityProtocol =
                [Net.ServicePointManager]::SecurityProtocol -bor [Net.SecurityProtocolType]::Tls12
            $ProgressPreference = 'SilentlyContinue' # showing it takes longer than the download
            Invoke-WebRequest -Uri $url -OutFile $target -UseBasicParsing
        } catch {
            Stop-With "$url cannot be fetched ($($_.Exception.Message))" `
                'check the network and the address, or name a folder by -Wheels'
        }
    }

    # Fetches a wheel and compares it with SHA256SUMS. Returns its path.
    function Get-Wheel([string]$Name) {
        Write-Host "fetching   $Name"
        Get-WheelFile $Name $Setup.Work
        $path = Join-Path $Setup.Work $Name
        if ($Setup.Hashes.Count -gt 0) {
            if (-not $Setup.Hashes.ContainsKey($Name)) {
                Stop-With "$($Setup.Wheels)/SHA256SUMS has no line for $Name" 'write it again: make hashes'
            }
            if ((Get-FileHash -LiteralPath $path -Algorithm SHA256).Hash -ne $Setup.Hashes[$Name]) {
                Stop-With "$Name is damaged: SHA256SUMS has another hash" 'fetch it again'
            }
        }
        return $path
    }

    # The version of llama-cpp-python that a wheel of dflash-local depends on.
    function Read-Requirement([string]$Path) {
        Add-Type -AssemblyName System.IO.Compression.FileSystem
        try {
            $archive = [System.IO.Compression.ZipFile]::OpenRead($Path)
            try {
                $entry = $archive.Entries | Where-Object { $_.FullName -like '*.dist-info/METADATA' } |
                    Select-Object -First 1
                $reader = New-Object System.IO.StreamReader($entry.Open())
                $text = $reader.ReadToEnd()
                $reader.Dispose()
            } finally {
                $archive.Dispose()
            }
        } catch {
            Stop-With "$(Split-Path -Leaf $Path) is damaged ($($_.Exception.Message))" 'fetch it again'
        }
        if ($text -notmatch '(?m)^Requires-Dist: llama[-_]cpp[-_]python *\(?==([\w.+]+)') {
            Stop-With "$(Split-Path -Leaf $Path) needs no llama-cpp-python" `
                'make both wheels together: dflash-local wheel'
        }
        return $Matches[1]
    }

    # Both wheels, as paths.
    function Get-Wheels([string[]]$Names, [string]$Own) {
        $path = Get-Wheel $Own
        $required = [regex]::Escape((Read-Requirement $path))
        $native = $Names | Where-Object { $_ -match "^llama_cpp_python-$required-py3-none-$Tag\.whl$" } |
            Select-Object -First 1
        if (-not $native) {
            Stop-With "$($Setup.Wheels) has no llama_cpp_python for $Tag, which $Own needs" `
                'put it there: both wheels are made together'
        }
        return @($path, (Get-Wheel $native))
    }

    function New-Environment([string]$Folder) {
        if ($Setup.Installer -eq 'uv') {
            $asked = if ($Setup.Python) { $Setup.Python } else { '>=3.10' }
            $options = @('--quiet', '--python', $asked)
            if (-not $Setup.Wheels) { $options += '--seed' } # `dflash-local build` installs with pip
            if ($Offline) { $options += '--offline' }
            $null = Invoke-Quietly 'uv' (@('venv') + $options + $Folder)
        } else {
            $null = Invoke-Quietly $Setup.Python @('-I', '-m', 'venv', $Folder)
        }
    }

    function Install-Packages([string]$Program, [string[]]$What) {
        $options = @('--quiet')
        if ($Offline) { $options += '--no-index' }
        if ($Setup.Wheels -and -not $Setup.IsUrl) { $options += @('--find-links', $Setup.Wheels) }
        if ($Setup.Installer -eq 'uv') {
            $null = Invoke-Quietly 'uv' (@('pip', 'install', '--compile-bytecode', '--python', $Program) + $options + $What)
        } else {
            # --no-user: a pip.ini may say the opposite, with which pip installs into no environment.
            $pip = @('-I', '-m', 'pip', '--disable-pip-version-check', '--no-input', 'install', '--no-user')
            $null = Invoke-Quietly $Program ($pip + $options + $What)
        }
    }

    # A new environment, complete and tried, takes the place of the old ones: a failure leaves those as they were.
    function Install-Environment([string[]]$Names, [string]$Own) {
        try {
            $null = New-Item -ItemType Directory -Force -Path (Join-Path $Setup.Home 'bin')
            Set-Content -LiteralPath (Join-Path $Setup.Home $Marker) `
                -Value 'This folder is the one of install.ps1; install.ps1 -Uninstall removes it.'
        } catch {
            Stop-With "$($Setup.Home) cannot be written ($($_.Exception.Message))" 'choose another folder by -Prefix'
        }
        $folder = Join-Path $Setup.Home "env-$(Get-Date -Format yyyyMMddHHmmss)-$PID"
        $program = Join-Path $folder 'Scripts\python.exe'
        $Setup.Unfinished = $folder
        New-Environment $folder
        if ($Setup.Wheels) {
            $files = Get-Wheels $Names $Own
            Write-Host "installing $Own and what it needs"
            Install-Packages $program $files
        } else {
            Write-Host 'installing dflash-local and what it needs'
            $what = if ($Version) { "dflash-local==$Version" } else { 'dflash-local' }
            Install-Packages $program @($what)
            Write-Host 'compiling llama.cpp'
            & (Join-Path $folder 'Scripts\dflash-local.exe') build --backend $Setup.Backend
            if ($LASTEXITCODE -ne 0) { Stop-With 'llama.cpp could not be compiled' 'see above' }
        }
        $broken = 'what was installed does not start on this machine'
        $fix = 'try another version or backend, by -Version or -Backend'
        $told = Invoke-Quietly (Join-Path $folder 'Scripts\dflash-local.exe') @('--version') $broken $fix
        # No double quotes: PowerShell 5.1 would pass them so that they end the argument.
        $check = "from dflash_local import native; print(*native.library_info()['backends'])"
        $loaded = Invoke-Quietly $program @('-I', '-c', $check) $broken $fix
        # A relative path has no letters that cmd's code page might lack; a byte order mark would be run as a command.
        $line = "@`"%~dp0..\$(Split-Path -Leaf $folder)\Scripts\dflash-local.exe`" %*`r`n"
        [System.IO.File]::WriteAllText($Setup.Command, $line, (New-Object System.Text.UTF8Encoding($false)))
        $Setup.Unfinished = ''
        # By name: the same folder may have several paths, with short names for example.
        $name = Split-Path -Leaf $folder
        Get-ChildItem -LiteralPath $Setup.Home -Directory -Filter 'env-*' | Where-Object { $_.Name -ne $name } |
            ForEach-Object { Remove-Old $_.FullName }
        Write-Host "installed  $told, with $loaded"
    }

    # As long as one of its programs runs, it stays whole: that program may still load files.
    function Remove-Old([string]$Folder) {
        $used = Find-Used $Folder
        if (-not $used) {
            try {
                Remove-Item -LiteralPath $Folder -Recurse -Force
                Write-Host 'replaced an older installation'
                return
            } catch {
                $used = $Folder
            }
        }
        Write-Host "note       $used is still in use: the next installation removes it"
    }

    function Write-Plan([string]$Own) {
        if ($Setup.Wheels) {
            Write-Host "backend    $($Setup.Backend)"
            Write-Host "wheel      $Own"
            Write-Host "from       $($Setup.Wheels)"
        } else {
            Write-Host "backend    $($Setup.Backend), compiled here, which takes minutes (no wheels are named: -Wheels)"
            Write-Host "from       the package index of $($Setup.Installer)"
        }
        Write-Host "into       $($Setup.Home), by $($Setup.Installer) $($Setup.Python)"
        Write-Host "command    $($Setup.Command)"
    }

    function Write-End {
        $bin = Join-Path $Setup.Home 'bin'
        if (($env:PATH -split ';') -notcontains $bin) {
            Write-Host "note       $bin is not on PATH. To add it for new windows:"
            Write-Host "  [Environment]::SetEnvironmentVariable('PATH', `"$bin;`" +" `
                "[Environment]::GetEnvironmentVariable('PATH', 'User'), 'User')"
        }
        Write-Host 'next       dflash-local demo'
        Write-Host 'remove     install.ps1 -Uninstall, with the same -Prefix'
    }

    function Invoke-Main {
        Resolve-Arguments
        if ($Uninstall) {
            Remove-Installation
            return
        }
        if ((Test-Path -LiteralPath $Setup.Home) -and -not (Test-Path -LiteralPath (Join-Path $Setup.Home $Marker)) -and
            (Get-ChildItem -LiteralPath $Setup.Home -Force)) {
            Stop-With "$($Setup.Home) is there and not from this script" 'move it away, or use -Prefix'
        }
        Find-Installer
        $Setup.Unfinished = ''
        $Setup.Work = Join-Path ([System.IO.Path]::GetTempPath()) "dflash-local-$PID"
        $null = New-Item -ItemType Directory -Force -Path $Setup.Work
        try {
            $names = @()
            $own = ''
            if ($Setup.Wheels) {
                $names = @(Get-WheelNames)
                $own = Select-Wheel $names
            }
            Write-Plan $own
            if (-not $DryRun) {
                Install-Environment $names $own
                Write-End
            }
        } finally {
            foreach ($folder in @($Setup.Unfinished, $Setup.Work)) {
                if ($folder -and (Test-Path -LiteralPath $folder)) {
                    Remove-Item -LiteralPath $folder -Recurse -Force -ErrorAction SilentlyContinue
                }
            }
        }
    }

    try {
        Invoke-Main
        $global:LASTEXITCODE = 0
    } catch {
        Write-Host $_.Exception.Message -ForegroundColor Red
        $global:LASTEXITCODE = 1
        # In a window into which this was piped, `exit` would close it.
        if ($PSCommandPath) { exit 1 }
    }
}
